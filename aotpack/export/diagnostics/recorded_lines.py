"""Lines of the model at nodes of graphs that are being traced: those of plain functions too.

torch keeps of a stack only what is called `forward`: a model that is a function, and functions that a module calls,
would have no line of their own. It also looks at the stack for each parameter, where no model is called, and describes
each of the hundred frames above each node, of which most were above the last node too, and few are kept.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import always, applied


@contextlib.contextmanager
def lines_recorded() -> Iterator[None]:
    """While active, nodes have all lines of the model that led to them."""
    stacks = always(_Stacks())
    with applied({places.FILTER_FRAMES: _keeping, places.CREATE_NODE: _calls_alone, places.STACK_OF_NODE: stacks}):
        yield


def _calls_alone(original: Any) -> Any:
    @functools.wraps(original)
    def create_node(self: Any, kind: str, *args: Any, **kwargs: Any) -> Any:
        if kind != "placeholder" or not self.record_stack_traces:
            return original(self, kind, *args, **kwargs)
        self.record_stack_traces = False
        try:
            return original(self, kind, *args, **kwargs)
        finally:
            self.record_stack_traces = True

    return create_node


class _Frame(traceback.FrameSummary):
    """A frame, whose text is read when it is asked for.

    Attributes:
        asks: whether it is one of aotpack that asks for a trace: those around it are the caller's.
    """

    __slots__ = ("_is_model", "asks")

    def __init__(self, path: str, number: int, name: str) -> None:
        super().__init__(path, number, name, lookup_line=False)
        self.asks = path.endswith(model_lines.TRACERS)
        self._is_model: bool | None = None

    @property
    def is_model(self) -> bool:
        """Whether it is at a line of the model."""
        if self._is_model is None:
            self._is_model = model_lines.is_model(self.filename, self.line)
        return self._is_model


class _Stacks:
    """Takes the place of `CapturedTraceback`. A frame is described once for each place in its code that it is at."""

    def __init__(self) -> None:
        # By its code, which is not hashed, as that would hash all of its constants, and is kept for its `id`.
        self._known: dict[tuple[int, int], tuple[_Frame, types.CodeType]] = {}

    def extract(self) -> _Stacks:
        return self

    def summary(self) -> traceback.StackSummary:
        """The frames of the stack, from the outermost."""
        found = traceback.StackSummary()
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            place = id(code), frame.f_lasti
            if place not in self._known:
                self._known[place] = _Frame(code.co_filename, frame.f_lineno, code.co_name), code
            found.append(self._known[place][0])
            frame = frame.f_back
        found.reverse()
        return found


def _keeping(original: Any) -> Any:
    @functools.wraps(original)
    def keep(self: Any, summary: traceback.StackSummary) -> traceback.StackSummary:
        kept = {(frame.filename, frame.lineno) for frame in original(self, summary)}
        frames = [frame for frame in summary if isinstance(frame, _Frame)]
        begin = max((i for i, frame in enumerate(frames) if frame.asks), default=-1) + 1
        return traceback.StackSummary.from_list(
            frame
            for i, frame in enumerate(frames)
            if (frame.filename, frame.lineno) in kept or (i >= begin and frame.is_model)
        )

    return keep
