"""Converts unexpected exceptions to errors of this package, with the place in the model.

Every stage of a build runs inside `reported`. An exception that no part of the package foresaw is a fault of the
package, whatever the model looks like, so the message says where it happened and asks for a report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.fx

from aotpack.errors import AotpackError, InternalError, OutOfMemoryError
from aotpack.export.diagnostics import model_lines

REPORT = (
    "this is a bug in aotpack, not in the model: please report it with this message and the traceback "
    "(AOTPACK_TRACEBACK=1 shows it on the command line)"
)
# Set on exceptions of callbacks that the caller passed in: they are the caller's own and leave as they are.
_OF_CALLER = "_aotpack_of_caller"
_LONGEST = 600
_NO_MEMORY = ("not enough memory: you tried to allocate", "can't allocate memory")


@dataclass(frozen=True)
class Place:
    """Where in a model something happened; "" where that is not known."""

    operator: str = ""
    module: str = ""
    line: str = ""

    def __str__(self) -> str:
        about = " ".join(
            part for part in (self.operator, f"of module {self.module}" if self.module else "") if part
        ).strip()
        return "".join(f"\n  at {part}" for part in (about, self.line) if part)


@contextlib.contextmanager
def reported(stage: str) -> Iterator[None]:
    """While active, an unforeseen exception is raised as InternalError, with the original as its cause.

    Errors of this package, MemoryError, OSError and what ends a process (KeyboardInterrupt, SystemExit) pass, and so
    does what a callback of the caller raises (see `callers_own`). Serves as a decorator too.

    Args:
        stage: what was going on, for the message: `"capture"`, `"pass assign-layouts"`.

    Raises:
        InternalError: something else was raised inside.
        OutOfMemoryError: torch could not allocate memory.
    """
    try:
        yield
    except (AotpackError, MemoryError, OSError):
        raise
    except Exception as error:
        if is_callers(error):
            raise
        if any(text in str(error) for text in _NO_MEMORY):
            raise OutOfMemoryError(f"{stage}: {summary(error)}") from error
        place = place_of(error)
        raise InternalError(
            f"{stage} failed with an unexpected error: {summary(error)}{place}",
            hint=REPORT,
            stage=stage,
            place=(place.operator, place.module, place.line),
        ) from error


@contextlib.contextmanager
def callers_own() -> Iterator[None]:
    """While active, exceptions are those of a callback, which `reported` lets through."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(AttributeError):  # an exception class with slots
            setattr(error, _OF_CALLER, True)
        raise


def is_callers(error: BaseException) -> bool:
    """Whether an exception came out of a callback (see `callers_own`)."""
    return bool(getattr(error, _OF_CALLER, False))


def summary(error: BaseException) -> str:
    """Type and message of an error, without the advice and the graphs that torch appends."""
    text = str(error).strip().partition("\n\n")[0]
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException) -> Place:
    """The operator, module and line of the model that an error is about.

    Out of the innermost frame that was working on a node of a graph; else the innermost line of the model that the
    error went through.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        node = _node_of(current)
        if node is not None:
            return _described(node)
        line = model_lines.of_error(current)
        if line is not None:
            return Place(line=line.full)
        current = current.__cause__ or current.__context__
    return Place()


def _node_of(error: BaseException) -> torch.fx.Node | None:
    found = None
    trace = error.__traceback__
    while trace is not None:
        found = _node_in(trace.tb_frame) or found
        trace = trace.tb_next
    return found


def _node_in(frame: FrameType) -> torch.fx.Node | None:
    """The call that a frame works on, by the names that passes and TorchInductor give it."""
    for name in ("node", "n", "user", "source", "fx_node"):
        value: Any = frame.f_locals.get(name)
        if isinstance(value, torch.fx.Node) and value.op == "call_function":
            return value
    return None


def _described(node: torch.fx.Node) -> Place:
    line = model_lines.of_trace(node.meta.get("stack_trace") or "")
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    path = path.removeprefix("L['self'].").removeprefix("L['self']")
    operator = str(node.target).removesuffix(".default")
    return Place(operator, path, line.full if line is not None else "")
