"""Products of groups of rows, each with a matrix of its own: mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.registry import define


def _groups(ends: Tensor) -> Iterator[tuple[int, int, int]]:
    first = 0
    for group, last in enumerate(ends.tolist()):
        yield group, first, last
        first = last


def _grouped_mm(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    y = x.new_zeros(x.shape[0], w.shape[2])
    for group, first, last in _groups(ends):
        y[first:last] = x[first:last] @ w[group]
    return y


def _grouped_mm_fake(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[2]))


def _grouped_outer(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([a[:, first:last] @ b[first:last] for _, first, last in _groups(ends)])


def _grouped_outer_fake(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return a.new_empty((ends.shape[0], a.shape[0], b.shape[1]))


# x [rows, k], w [groups, k, n], ends [groups] integers → [rows, n], contiguous. Group g has the rows from ends[g - 1]
# to ends[g]; rows that are left over are 0.
grouped_mm = define("grouped_mm(Tensor x, Tensor w, Tensor ends) -> Tensor", _grouped_mm, _grouped_mm_fake)
# a [m, k], b [k, n]: [groups, m, n], of each group's part of k.
grouped_outer = define("grouped_outer(Tensor a, Tensor b, Tensor ends) -> Tensor", _grouped_outer, _grouped_outer_fake)


def grouped_product(
    x: Tensor, w: Tensor, ends: Tensor | None, bias: Tensor | None, dtype: torch.dtype | None
) -> Tensor | Any:
    """torch._grouped_mm by the operators of this file; `NotImplemented` for what it does not take either."""
    if bias is not None or x.dtype != w.dtype or x.shape[-1] != w.shape[-2]:
        return NotImplemented
    if x.dim() == 3 and w.dim() == 3:
        y = torch.bmm(x, w)
    elif ends is None:
        return NotImplemented
    elif x.dim() == 2:
        y = grouped_mm(x, w, ends) if w.dim() == 3 else grouped_outer(x, w, ends)
    else:
        # Groups of columns: those of rows, transposed.
        y = grouped_mm(w.t(), x.transpose(1, 2), ends).t()
    return y if dtype is None else y.to(dtype)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _grouped_mm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, w, ends = ctx.saved_tensors
    return grouped_mm(grad, w.transpose(1, 2), ends), grouped_outer(x.t(), grad, ends), None


def _grouped_outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    a, b, ends = ctx.saved_tensors
    return grouped_mm(b, grad.transpose(1, 2), ends).t(), grouped_mm(a.t(), grad, ends), None


torch.library.register_autograd("aotpack::grouped_mm", _grouped_mm_backward, setup_context=_keep)
torch.library.register_autograd("aotpack::grouped_outer", _grouped_outer_backward, setup_context=_keep)
