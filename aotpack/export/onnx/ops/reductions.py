"""Reductions, softmax and its like."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.ops.elementwise import wide
from aotpack.export.onnx.ops.shapes import axes_of

Tensor = torch.Tensor
_Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _reduction(name: str, function: _Reduce) -> None:
    @operator(name, known=(1,))
    def compute(node: Node, x: Tensor, axes: Any = None) -> Tensor:
        wanted = axes_of(node, axes)
        keep = bool(node.get("keepdims", 1))
        if not wanted:
            if node.get("noop_with_empty_axes", 0) and not (wanted is None and node.version < 18 and axes is None):
                return _noop(node, x)
            wanted = list(range(x.dim()))
        return function(wide(x), [a % max(x.dim(), 1) for a in wanted] if x.dim() else [], keep).to(x.dtype)

    def _noop(node: Node, x: Tensor) -> Tensor:
        """Nothing is reduced: each element is a group of its own."""
        return function(wide(x).unsqueeze(-1), [x.dim()], False).to(x.dtype)


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype) if axes else x


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep) if axes else x
    count = math.prod(x.shape[a] for a in axes)
    return torch.div(_sum(x, axes, keep), count, rounding_mode="trunc")


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _extreme(x: Tensor, axes: list[int], keep: bool, function: Any, empty: float) -> Tensor:
    if not axes:
        return x
    if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
        shape = [1 if i in axes else s for i, s in enumerate(x.shape) if keep or i not in axes]
        if x.is_floating_point():
            return torch.full(shape, empty, dtype=x.dtype)
        if x.dtype == torch.bool:
            return torch.full(shape, empty > 0, dtype=torch.bool)
        info = torch.iinfo(x.dtype)
        return torch.full(shape, info.max if empty > 0 else info.min, dtype=x.dtype)
    result: Tensor = function(x, axes, keepdim=keep)
    return result


def _max(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, torch.amax, -math.inf)


def _min(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, torch.amin, math.inf)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    exact = x if x.is_floating_point() else x.double()
    return torch.logsumexp(exact, axes, keepdim=keep) if axes else exact


def _root(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    exact = x if x.is_floating_point() else x.double()
    return torch.sqrt(_sum(exact * exact, axes, keep))


def _log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    total = _sum(x, axes, keep)
    return torch.log(total if total.is_floating_point() else total.double())


_reduction("ReduceSum", _sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceProd", _prod)
_reduction("ReduceMax", _max)
_reduction("ReduceMin", _min)
_reduction("ReduceL1", lambda x, axes, keep: _sum(x.abs(), axes, keep))
_reduction("ReduceL2", _root)
_reduction("ReduceSumSquare", lambda x, axes, keep: _sum(x * x, axes, keep))
_reduction("ReduceLogSum", _log_sum)
_reduction("ReduceLogSumExp", _log_sum_exp)


# ---- softmax --------------------------------------------------------------------------------------------------------


def _by_rows(node: Node, x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Before opset 13, all axes from `axis` on are one."""
    axis = node.get("axis", 1) % max(x.dim(), 1)
    if axis == x.dim() - 1:
        return function(x, axis)
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return function(rows, 1).reshape(x.shape)


@operator("Softmax")
def softmax_of_rows(node: Node, x: Tensor) -> Tensor:
    return _by_rows(node, x, torch.softmax)


@operator("Softmax", since=13)
def softmax(node: Node, x: Tensor) -> Tensor:
    return torch.softmax(x, node.get("axis", -1))


@operator("LogSoftmax")
def log_softmax_of_rows(node: Node, x: Tensor) -> Tensor:
    return _by_rows(node, x, torch.log_softmax)


@operator("LogSoftmax", since=13)
def log_softmax(node: Node, x: Tensor) -> Tensor:
    return torch.log_softmax(x, node.get("axis", -1))


def _hardmax(x: Tensor, axis: int) -> Tensor:
    best = torch.argmax(x, dim=axis, keepdim=True)
    shape = [1] * x.dim()
    shape[axis] = -1
    return (torch.arange(x.shape[axis]).reshape(shape) == best).to(x.dtype)


@operator("Hardmax")
def hardmax_of_rows(node: Node, x: Tensor) -> Tensor:
    return _by_rows(node, x, _hardmax)


@operator("Hardmax", since=13)
def hardmax(node: Node, x: Tensor) -> Tensor:
    return _hardmax(x, node.get("axis", -1))
