"""What the condition of a rewrite sees of a place that matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.fx

from aotpack.export.diagnostics import model_lines
from aotpack.export.ir.rewriter import Rewriter, layer_of

Number = bool | int | float


@dataclass(frozen=True)
class Value:
    """A tensor of the program.

    Attributes:
        shape: its sizes; None for a dynamic one.
        dtype: its dtype.
        constant: whether it is a weight, or another tensor with the same value in each call.
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype
    constant: bool


@dataclass(frozen=True)
class Match:
    """A place of the program that matches a pattern.

    Attributes:
        values: what the parameters of the pattern, or the arguments of the operator, are here, by name. Arguments that
            are neither tensors nor lists of tensors are as they are in the call.
        result: what the place computes; a tuple for operators with several results.
        module: the path of the innermost module of the model; "" for the top.
        line: the line of the model, as `model.py:12: code`; "" if it is not known.
    """

    values: Mapping[str, object]
    result: object
    module: str
    line: str

    def __getitem__(self, name: str) -> object:
        """The value of a parameter.

        Raises:
            KeyError: the pattern has no such parameter.
        """
        return self.values[name]

    def tensor(self, name: str) -> Value:
        """The value of a parameter that is a tensor.

        Raises:
            TypeError: it is something else here.
            KeyError: the pattern has no such parameter.
        """
        value = self.values[name]
        if not isinstance(value, Value):
            raise TypeError(f"{name!r} is {value!r} here, not a tensor")
        return value


def match_of(editor: Rewriter, node: torch.fx.Node, values: Mapping[str, object]) -> Match:
    """The match at a node, for parameters with these nodes and numbers."""
    line = model_lines.of_trace(node.meta.get("stack_trace") or "")
    described = {name: _described(editor, value) for name, value in values.items()}
    return Match(described, _tensors(node.meta["val"]), layer_of(node), "" if line is None else line.full)


def _described(editor: Rewriter, value: object) -> object:
    if isinstance(value, torch.fx.Node):
        found = value.meta.get("val")
        return _value(found, constant=editor.constant(value) is not None) if isinstance(found, torch.Tensor) else found
    if isinstance(value, (list, tuple)):
        return type(value)(_described(editor, item) for item in value)
    return value


def _tensors(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(map(_tensors, value))
    return _value(value, constant=False) if isinstance(value, torch.Tensor) else value


def _value(tensor: torch.Tensor, *, constant: bool) -> Value:
    shape = tuple(size if isinstance(size, int) else None for size in tensor.shape)
    return Value(shape, tensor.dtype, constant)
