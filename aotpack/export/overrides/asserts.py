"""Asserts on values of tensors: every call of the archive checks them.

A trace does not know these values. Python asks a tensor for its truth in the middle of a statement; where that is an
`assert`, the bytecode says so, and what must hold becomes an operator of the graph.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotpack.export.overrides.table import overrides, replaces
from aotpack.export.torch_compat.fake_tensors import FakeTensor
from aotpack.export.torch_compat.functions import assert_async

# As eager says it.
_WITHOUT_MESSAGE = "Expected Tensor with single nonzero value, but got zero"


@replaces(torch, "_assert")
def _assert(condition: Any, message: Any) -> None:
    if isinstance(condition, Tensor):
        assert_async(condition, str(message) or "assertion failed")
    elif isinstance(condition, torch.SymBool):
        torch._check(condition, lambda: str(message) or "assertion failed")
    elif not condition:
        raise AssertionError(message)


@overrides(assert_async)
def _assert_async(condition: Tensor, assert_msg: str | None = None) -> None:
    # TorchInductor leaves out the overload without a message.
    assert_async(condition, _WITHOUT_MESSAGE if assert_msg is None else assert_msg or "assertion failed")


@overrides(Tensor.__bool__)
def _bool(tensor: Tensor) -> Any:
    if not isinstance(tensor, FakeTensor) or any(size != 1 for size in tensor.shape if isinstance(size, int)):
        return NotImplemented
    if any(not isinstance(size, int) for size in tensor.shape):
        return NotImplemented
    found = _assertion(sys._getframe())
    if found is None:
        return NotImplemented
    held = tensor.reshape(()) != 0
    assert_async(held if found.wanted else held.logical_not(), found.message)
    return found.wanted


class _Assertion(NamedTuple):
    """What an assert statement asks of a value."""

    wanted: bool
    message: str


def _assertion(frame: FrameType | None) -> _Assertion | None:
    """The assert statement that the innermost frame which asks for a truth is in; None if it is in another one."""
    while frame is not None:
        instructions = list(dis.get_instructions(frame.f_code))
        index = next((i for i, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
        if index is not None and instructions[index].opname == "TO_BOOL":
            index += 1
        if index is not None and "JUMP" in instructions[index].opname and "_IF_" in instructions[index].opname:
            return _at(frame, instructions, index)
        if index is not None and instructions[index].opname == "UNARY_NOT":
            return None
        frame = frame.f_back
    return None


def _at(frame: FrameType, instructions: list[dis.Instruction], index: int) -> _Assertion | None:
    """The assertion whose failure a conditional jump leads to, or avoids."""
    jump = instructions[index]
    if "TRUE" not in jump.opname and "FALSE" not in jump.opname:
        return None
    on_true = "TRUE" in jump.opname
    next_one = instructions[index + 1] if index + 1 < len(instructions) else None
    target = next((each for each in instructions if each.offset == jump.argval), None)
    if next_one is not None and _raises(next_one):
        return _Assertion(on_true, _message(frame, next_one))
    if target is not None and _raises(target):
        return _Assertion(not on_true, _message(frame, target))
    return None


def _raises(instruction: dis.Instruction) -> bool:
    """Whether the failure of an assert begins here."""
    return instruction.opname == "LOAD_ASSERTION_ERROR" or (
        instruction.opname == "LOAD_COMMON_CONSTANT" and "AssertionError" in instruction.argrepr
    )


def _message(frame: FrameType, failure: dis.Instruction) -> str:
    """The message of the statement: a string, or what a name or attribute is; else the condition."""
    statement = _statement(frame.f_code, failure)
    if statement is None:
        return "assertion failed"
    text = _text(statement.msg, frame) if statement.msg is not None else None
    return text or f"assertion failed: {ast.unparse(statement.test)}"


def _statement(code: CodeType, failure: dis.Instruction) -> ast.Assert | None:
    """The statement in the source; None where that is not at hand."""
    line = None if failure.positions is None else failure.positions.lineno
    found = _asserts("".join(linecache.getlines(code.co_filename)))
    around = [each for each in found if line is not None and each.lineno <= line <= (each.end_lineno or 0)]
    return around[-1] if around else None


@functools.lru_cache(maxsize=8)
def _asserts(source: str) -> tuple[ast.Assert, ...]:
    """The assert statements of a file."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Assert))


def _text(message: ast.expr, frame: FrameType) -> str | None:
    if isinstance(message, ast.Constant):
        return str(message.value)
    value: Any = None
    if isinstance(message, ast.Name):
        value = frame.f_locals.get(message.id, frame.f_globals.get(message.id))
    elif isinstance(message, ast.Attribute) and isinstance(message.value, ast.Name):
        value = getattr(frame.f_locals.get(message.value.id), message.attr, None)
    return value if isinstance(value, str) else None
