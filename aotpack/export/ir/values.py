"""What the values of nodes are: views of others, and the sizes and symbols that occur in them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.torch_compat.fake_tensors import FakeTensorMode
from aotpack.export.torch_compat.operators import OpOverload, operator_schema


def is_view(node: torch.fx.Node) -> bool:
    """Whether a node's result shares memory with an argument, and it computes nothing."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    schema = operator_schema(node.target)
    return not schema.is_mutable and any(result.alias_info is not None for result in schema.returns)


def sizes_of(value: Any) -> Iterator[sympy.Basic]:
    """The sizes of a tensor, or a number, as expressions; constants are left out."""
    for size in value.shape if isinstance(value, torch.Tensor) else (value,):
        if isinstance(size, torch.SymInt):
            yield shape_env.expression(size)


def symbols_of(value: Any) -> Iterator[sympy.Basic]:
    """The symbols in a value, in an order that is the same in each build."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from symbols_of(item)
    elif isinstance(value, torch.Tensor):
        for size in (*value.shape, *value.stride()):
            yield from symbols_of(size)
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield from sorted(shape_env.expression(value).free_symbols, key=str)


def dense_value(value: torch.Tensor, order: Sequence[int], mode: FakeTensorMode) -> torch.Tensor:
    """A fake tensor with the strides that inputs have, dims in `order` from outermost to innermost: plain products,
    without torch's `max(1, size)`, which TorchInductor cannot always divide by.
    """
    strides: list[Any] = [1] * value.dim()
    step: Any = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * value.shape[axis]
    with mode:
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
