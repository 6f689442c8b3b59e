"""Scales and zero points that an index chooses for each row of a weight, as GPTQ's `g_idx` does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.fx
from torch import Tensor

from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Chosen:
    """Attributes:
    index: which group each place along k belongs to, [k]; may count from the end.
    groups: how many there are.
    size: of the dim of the result of the choice that has k.
    inner: how many elements of that lie behind one of its places along k.
    """

    index: torch.fx.Node
    groups: int
    size: int
    inner: int

    def follows(self, rows: Tensor) -> bool:
        """Whether column i of a matrix has what was chosen for place i alone.

        Args:
            rows: the places of the elements in the result of the choice, [n, k].
        """
        if rows.shape[1] != self.size:
            return False
        columns = rows // self.inner % self.size
        rest = rows - columns * self.inner
        return bool((columns == torch.arange(self.size)).all() and (rest == rest[:, :1]).all())


def chosen(node: torch.fx.Node) -> Chosen | None:
    """The choice along one dim that a call makes by an index of one dim; None for other calls."""
    if node.target is aten.index.Tensor:
        source, indices = node.args
        if not isinstance(indices, (list, tuple)) or sum(index is not None for index in indices) != 1:
            return None
        (dim,) = (d for d, index in enumerate(indices) if index is not None)
        index = indices[dim]
    elif node.target is aten.index_select.default:
        source, dim, index = node.args  # type: ignore[assignment]
    else:
        return None
    if not isinstance(source, torch.fx.Node) or not isinstance(index, torch.fx.Node) or not isinstance(dim, int):
        return None
    if dtype_of(index) not in (torch.int32, torch.int64) or len(shape_of(index)) != 1 or not shape_of(source):
        return None
    dim %= len(shape_of(source))
    return Chosen(index, shape_of(source)[dim], shape_of(index)[0], math.prod(shape_of(node)[dim + 1 :]))


def same_value(rewriter: Rewriter, a: object, b: object) -> bool:
    """Whether two values are computed by the same calls from the same constants."""
    if a is b:
        return True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_value(rewriter, x, y) for x, y in zip(a, b, strict=True))
    if not isinstance(a, torch.fx.Node) or not isinstance(b, torch.fx.Node):
        return type(a) is type(b) and a == b
    if a.op != b.op or a.op not in ("call_function", "get_attr"):
        return False
    if a.target != b.target:
        recipes = [rewriter.info(str(node.target)).recipe for node in (a, b) if node.op == "get_attr"]
        return len(recipes) == 2 and recipes[0] is not None and recipes[0] == recipes[1]
    return same_value(rewriter, a.args, b.args) and same_value(rewriter, list(a.kwargs.items()), list(b.kwargs.items()))


def ordered(index: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Places along k in the order of their groups, int32 [k], and where each group begins and the last ends.

    Args:
        index: of `Chosen`.
        groups: how many there are.
    """
    index = torch.where(index < 0, index + groups, index)
    order = torch.sort(index, stable=True).indices.to(torch.int32)
    steps = torch.arange(groups + 1, device=index.device)
    return order, (index < steps[:, None]).sum(1).to(torch.int32)
