"""Keeps torch from writing graphs, tracebacks and warnings to stderr: the errors of aotpack report what matters.

Interfaces touched (torch 2.11 to 2.13):
  torch.fx.experimental.symbolic_shapes.log, torch.export.log   silenced below errors
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat.patches import always, applied

_LOGGERS = (
    "torch.export",
    "torch.export.pt2_archive._package",
    "torch.fx.experimental.symbolic_shapes",
    "torch._export.non_strict_utils",
)


@contextlib.contextmanager
def torch_quiet() -> Iterator[None]:
    """While active, torch says nothing on stderr about a trace or a file that it cannot make sense of."""
    with (
        warnings.catch_warnings(),
        applied({"torch.export._trace:print": always(_print)}),
        contextlib.ExitStack() as stack,
    ):
        warnings.simplefilter("ignore")
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addFilter(_is_error)
            stack.callback(logger.removeFilter, _is_error)
        yield


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _print(*values: Any, **options: Any) -> None:
    if options.get("file") is not sys.stderr:
        builtins.print(*values, **options)
