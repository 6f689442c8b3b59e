"""Lines of the model at nodes of graphs that are being traced: those of plain functions too.

torch keeps of a stack only what is called `forward`: a model that is a function, and functions that a module calls,
would have no line of their own.
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
    with applied({places.FILTER_FRAMES: _keeping}):
        yield


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
