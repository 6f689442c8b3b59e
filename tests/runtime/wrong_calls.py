"""docs/calls.md, generated from the table of wrong calls (tests/runtime/wrong_calls_table.py). To regenerate it:

python -m tests.runtime.wrong_calls docs/calls.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.runtime.wrong_calls_table import TABLE, Section, Wrong
from tests.support.archives import build_manifest
from tests.support.recipes import RECIPES
from tests.support.structures import Batch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "calls.md"

HEAD = """\
# Input validation errors

Every call is validated; validation cannot be turned off. The archive stores the conditions as data
([format.md](format.md)), and the runtime evaluates them before it runs any code of the model. An
invalid call raises `InputError` (a `ValueError` with an optional `hint`) with the message below, or
the error that precedes the message. The model stays usable.

The Python API raises messages that begin with *argument*; they describe the arguments of the Python
call. The runtime raises the other messages. C and C++ callers receive them unchanged with the code
`AOTPACK_INVALID_ARGUMENT`. The condition of an entry with one variant must hold for every call.
With several variants, a call runs the first variant that it matches. If no variant matches, the
message lists the unmet condition of each.

This page is generated from the table of a test (`tests/runtime/wrong_calls_table.py`), which makes
these calls and compares the messages. In the calls, `zeros(2, 4)` is `np.zeros((2, 4), "float32")`,
`read_only(a)` is `a` marked as not writable, `overlapping(3, 2)` is an array whose rows share
elements, `OnGpu()` is an array on a GPU, and `Batch` is a dataclass.
"""


class OnGpu:
    """An array that reports a GPU as its device, like arrays of other libraries."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise AssertionError("memory of another device was asked for")


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def overlapping(rows: int, columns: int) -> Any:
    return np.lib.stride_tricks.as_strided(zeros(rows + columns - 1), (rows, columns), (4, 4))


def evaluate(call: str, model: Any) -> Any:
    """The result of a call of the table."""
    names = {"zeros": zeros, "read_only": read_only, "overlapping": overlapping, "OnGpu": OnGpu, "Batch": Batch}
    return eval(call, {"model": model, "np": np, **names})


def page() -> str:
    """The text of docs/calls.md."""
    return HEAD + "".join(map(_section, TABLE))


def _section(section: Section) -> str:
    (entry,) = build_manifest(RECIPES[section.recipe], b"")[0].entries
    lines = ["", f"## {section.title}", "", "```", str(entry.signature)]
    several = len(entry.variants) > 1
    for variant in entry.variants:
        when = variant.when(entry.inputs)
        if several:
            lines.append(f"  variant {variant.name}: {when or 'always'}")
        elif when:
            lines.append(f"  if {when}")
    lines += ["```", "", "| error | call | message |", "|---|---|---|", *map(_row, section.calls)]
    return "\n".join(lines) + "\n"


def _row(wrong: Wrong) -> str:
    error = "" if wrong.error == "InputError" else f"`{wrong.error}`: "
    assert "|" not in wrong.call + wrong.message + wrong.what
    return f"| {wrong.what} | `{wrong.call}` | {error}`{wrong.message}` |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
