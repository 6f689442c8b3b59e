"""Keeps torch from writing graphs, tracebacks and warnings to stderr: the errors of aotpack report what matters."""

from __future__ import annotations

import builtins
import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat import loggers, places
from aotpack.export.torch_compat.late_networkx import load_partitioners
from aotpack.export.torch_compat.patches import always, applied


@contextlib.contextmanager
def torch_quiet() -> Iterator[None]:
    """While active, torch says nothing on stderr about a trace or a file that it cannot make sense of."""
    load_partitioners()
    with (
        warnings.catch_warnings(),
        applied({places.TRACE_PRINT: always(_print)}),
        contextlib.ExitStack() as stack,
    ):
        warnings.simplefilter("ignore")
        for name in loggers.REPORTING:
            logger = logging.getLogger(name)
            logger.addFilter(_is_error)
            stack.callback(logger.removeFilter, _is_error)
        yield


def _is_error(record: logging.LogRecord) -> bool:
    # torch.export classifies what it raises.
    return record.levelno >= logging.ERROR and not record.name.startswith("torch.export")


def _print(*values: Any, **options: Any) -> None:
    if options.get("file") is not sys.stderr:
        builtins.print(*values, **options)
