"""Lines of the model at nodes of graphs that are being traced: those of plain functions too.

torch keeps of a stack only what is called `forward`: a model that is a function, and functions that a module calls,
would have no line of their own. It also looks at the stack for each parameter, where no model is called, and reads the
text of every line of each stack from its file.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Iterator
from typing import Any

from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied


@contextlib.contextmanager
def lines_recorded() -> Iterator[None]:
    """While active, nodes have all lines of the model that led to them."""
    with applied({places.FILTER_FRAMES: _keeping, places.CREATE_NODE: _calls_alone, places.FRAMES_OF_STACK: _unread}):
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


def _unread(original: Any) -> Any:
    @functools.wraps(original)
    def extract(tb: Any, skip: int) -> traceback.StackSummary:
        # The text of a line is read when it is asked for.
        frames = (traceback.FrameSummary(f["filename"], f["line"], f["name"], lookup_line=False) for f in tb[skip:])
        return traceback.StackSummary.from_list(reversed(list(frames)))

    return extract


def _keeping(original: Any) -> Any:
    @functools.wraps(original)
    def keep(self: Any, summary: traceback.StackSummary) -> traceback.StackSummary:
        kept: traceback.StackSummary = original(self, summary)
        asking = (i for i, frame in enumerate(summary) if frame.filename.endswith(model_lines.TRACERS))
        begin = max(asking, default=-1) + 1
        known = {(frame.filename, frame.lineno) for frame in kept}
        return traceback.StackSummary.from_list(
            frame
            for i, frame in enumerate(summary)
            if (frame.filename, frame.lineno) in known
            or (i >= begin and model_lines.is_model(frame.filename, frame.line))
        )

    return keep
