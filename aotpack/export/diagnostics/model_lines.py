"""Lines of the model: which frames of a stack are the user's, and how messages quote them.

What counts as the model is everything outside torch, this package and the standard library's wrappers: the user's own
files, notebooks, and the libraries that models are made of, such as torchvision and transformers.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

import torch

# The folder of this package.
OWN = str(Path(__file__).resolve().parents[2]) + os.sep
_TRITON = importlib.util.find_spec("triton")
_OUTSIDE = (
    os.path.dirname(torch.__file__) + os.sep,
    *(folder + os.sep for folder in (_TRITON and _TRITON.submodule_search_locations) or ()),
    OWN,
    "<eval_with_key",
)
# Files of aotpack that trace graphs or that users call: frames above them belong to the caller of the build, not to
# the model.
TRACERS = tuple(
    os.path.join("aotpack", "export", *name.split("/")) + ".py"
    for name in (
        "backends/cpu/lower",
        "driver/build",
        "capture/exported",
        "capture/forward",
        "capture/joint",
        "capture/models",
        "passes/runner",
        "probing/probe",
        "probing/trial",
        "tracing/functional",
        "tracing/gradients",
        "tracing/joint",
        "tracing/trace",
    )
)
_HELPERS = tuple(os.sep + name for name in ("contextlib.py", "functools.py", os.path.join("unittest", "mock.py")))
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n\s*(?!File ")(.*))?')


@dataclass(frozen=True)
class ModelLine:
    """One line of the model: its file, its number from 1, the function that it is in, and its text."""

    path: str
    number: int
    function: str
    text: str

    @property
    def full(self) -> str:
        """`/home/me/model.py:12, in forward: k = x.item()`; for messages while building."""
        return f"{self.path}:{self.number}, in {self.function}: {self.text}"

    @property
    def short(self) -> str:
        """`k = x.item(), model.py:12`; for what is stored in archives, which do not tell the builder's folders."""
        return f"{self.text}, {os.path.basename(self.path)}:{self.number}"


def is_model(path: str, text: str | None) -> bool:
    """Whether a line of this file, with this text, is the model's."""
    if path.startswith(_OUTSIDE) or path.endswith(_HELPERS):
        return False
    # Notebooks have sources under such names, generated functions have none.
    return bool(text) or not path.startswith("<")


def of_frame(frame: types.FrameType) -> ModelLine | None:
    """The line that a frame is at; None unless it is the model's."""
    code = frame.f_code
    return _line(code.co_filename, frame.f_lineno, code.co_name, "")


def of_stack(frame: types.FrameType | None) -> ModelLine | None:
    """The innermost line of the model at or above a frame; None where there is none."""
    while frame is not None:
        line = of_frame(frame)
        if line is not None:
            return line
        frame = frame.f_back
    return None


def of_error(error: BaseException) -> ModelLine | None:
    """The innermost line of the model that an error went through."""
    return of_summary(traceback.extract_tb(error.__traceback__))


def at_line(error: BaseException) -> str:
    """Where in the model an error came from, as the end of a message: "" or a line of its own."""
    line = of_error(error)
    return "" if line is None else f"\n  at {line.full}"


def of_summary(stack: traceback.StackSummary) -> ModelLine | None:
    """The innermost line of the model in a stack."""
    for frame in reversed(stack):
        line = _line(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        if line is not None:
            return line
    return None


def of_trace(trace: str) -> ModelLine | None:
    """The innermost line of the model in the text of a stack, as nodes of graphs have it (`stack_trace`)."""
    for path, number, function, text in reversed(_FRAME.findall(trace)):
        line = _line(path, int(number), function, text)
        if line is not None:
            return line
    return None


def _line(path: str, number: int, function: str, text: str) -> ModelLine | None:
    text = (text or linecache.getline(path, number)).strip()
    return ModelLine(path, number, function, text) if is_model(path, text) else None
