"""Which passes a build runs."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from aotpack.errors import BuildError
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import Pass

PASSES: tuple[Pass, ...] = (*COMMON, *CPU)


def switchable() -> tuple[Pass, ...]:
    """The passes that a build can do without."""
    return tuple(step for step in PASSES if not step.always and step.part_of is None)


def select(without: Collection[str] = ()) -> tuple[Pass, ...]:
    """The passes but those named in `without`; `"all"` names all that can be switched off.

    Raises:
        BuildError: there is no pass of that name.
    """
    names = [step.name for step in switchable()]
    for name in without:
        if name not in names and name != "all":
            close = difflib.get_close_matches(name, names, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise BuildError(f"there is no pass {name!r} to switch off", hint=f"{meant}passes: {', '.join(names)}")
    off = set(names) if "all" in without else set(without)
    return tuple(step for step in PASSES if step.always or (step.part_of or step.name) not in off)
