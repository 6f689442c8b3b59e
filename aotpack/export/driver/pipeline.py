"""The passes of a build: the common passes once, then those of each backend."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from aotpack.errors import BuildError
from aotpack.export.driver.backends import BACKENDS
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import Pass

PASSES: tuple[Pass, ...] = (*COMMON, *(step for backend in BACKENDS for step in backend.passes))


def switchable() -> tuple[Pass, ...]:
    """The passes that a build can do without."""
    return tuple(step for step in PASSES if not step.always and step.part_of is None)


def select(without: Collection[str] = (), passes: Sequence[Pass] = PASSES) -> tuple[Pass, ...]:
    """The passes but those named in `without`; `"all"` names all that can be switched off.

    Args:
        without: names of passes, of whichever pipeline.
        passes: the pipeline to select from; by default all of them.

    Raises:
        BuildError: there is no pass of that name.
    """
    names = [step.name for step in switchable()]
    for name in without:
        if name not in names and name != "all":
            close = difflib.get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise BuildError(f"unknown pass {name!r}", hint=f"{meant}passes: {', '.join(names)}")
    off = set(names) if "all" in without else set(without)
    return tuple(step for step in passes if step.always or (step.part_of or step.name) not in off)
