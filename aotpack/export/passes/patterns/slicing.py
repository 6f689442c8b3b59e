"""Whether a dense value may become a slice of a wider one, and the effect on its views."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.export.ir.rewriter import Rewriter, is_contiguous
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher
from aotpack.export.torch_compat.operators import OpOverload
from aotpack.export.torch_compat.tensors import storage_id

aten = torch.ops.aten

# They read any strides as fast as dense rows: our kernels, and what Inductor compiles into loops of its own.
_READERS = frozenset(
    (
        aten.linear.default,
        aten.addmm.default,
        aten.mm.default,
        aten.bmm.default,
        aten.matmul.default,
        aten.scaled_dot_product_attention.default,
        aten.clone.default,
        aten.cat.default,
        aten.stack.default,
        aten.to.dtype,
        aten.softmax.int,
        aten._softmax.default,
        aten.layer_norm.default,
        aten.native_layer_norm.default,
        aten.rms_norm.default,
        aten.mean.default,
        aten.mean.dim,
        aten.sum.default,
        aten.sum.dim_IntList,
        aten.amax.default,
        aten.roll.default,
    )
)
_VIEWS = frozenset(
    (
        aten.view.default,
        aten.reshape.default,
        aten._unsafe_view.default,
        aten.unflatten.int,
        aten.flatten.using_ints,
        aten.transpose.int,
        aten.permute.default,
        aten.t.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.expand.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.chunk.default,
        aten.unbind.int,
        operator.getitem,
    )
)


def is_pointwise(node: torch.fx.Node) -> bool:
    """Whether a call computes each element of its result from one of each argument."""
    return isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags


def same_value(node: torch.fx.Node) -> object:
    """The same object for a value and for equal views of it."""
    if node.op != "call_function" or node.target not in _VIEWS:
        return node
    return node.target, same_value_of(node.args), str(sorted(node.kwargs.items()))


def same_value_of(value: Any) -> object:
    """`same_value` of all nodes in an argument."""
    if isinstance(value, (list, tuple)):
        return tuple(same_value_of(item) for item in value)
    return same_value(value) if isinstance(value, torch.fx.Node) else value


class Slicing:
    """How to change the readers of a dense value [..., n] that will be a slice of a dense one [..., total].

    Attributes:
        possible: whether all readers read the slice without a copy of it that there was not before.
    """

    def __init__(self, rewriter: Rewriter, node: torch.fx.Node, total: int) -> None:
        self._editor = rewriter
        self._values: dict[torch.fx.Node, Any] = {}
        old = node.meta["val"]
        self.possible = False
        if not is_contiguous(old) or old.dim() == 0:
            return
        with rewriter.mode, torch.no_grad(), enable_python_dispatcher():
            whole = old.new_empty((*old.shape[:-1], total))
            self.possible = self._follow(node, whole[..., : old.shape[-1]])

    def commit(self) -> None:
        """Gives the views of the value the strides that they have as views of the slice."""
        for node, value in self._values.items():
            node.meta["val"] = value

    def _follow(self, node: torch.fx.Node, value: Any) -> bool:
        return all(self._reads(user, node, value) for user in node.users)

    def _reads(self, user: torch.fx.Node, node: torch.fx.Node, value: Any) -> bool:
        if user.op != "call_function":
            return False  # a result of the graph
        if is_pointwise(user) or user.target in _READERS:
            return True
        if user.target is aten.contiguous.default:
            return not is_contiguous(node.meta["val"])  # else it was no copy
        if user.target not in _VIEWS:
            return False
        known = {**self._values, node: value}
        args, kwargs = map_arg((user.args, user.kwargs), lambda n: known.get(n, n.meta["val"]))
        function: Any = user.target
        try:
            seen = function(*args, **kwargs)
        except (RuntimeError, ValueError):
            return False  # `view` where there is no view
        if not _shares_memory(seen, value):
            return False  # `reshape` would copy
        self._values[user] = seen
        return self._follow(user, seen)


def _shares_memory(view: Any, value: Any) -> bool:
    one, other = (v[0] if isinstance(v, (list, tuple)) else v for v in (view, value))
    return storage_id(one) == storage_id(other)
