"""Activations and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export.decompositions.table import aten, decomposes


@decomposes(aten.glu.default)
def _glu(x: Tensor, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid()


@decomposes(aten.glu_jvp.default)
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Any:
    half = x.shape[dim] // 2
    gate = x.narrow(dim, half, half).sigmoid()
    return dx.narrow(dim, 0, half) * gate + dx.narrow(dim, half, half) * (1 - gate) * glu


@decomposes(aten.glu_backward_jvp.default)
def _glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Any:
    half = x.shape[dim] // 2
    value, gate = x.narrow(dim, 0, half), x.narrow(dim, half, half).sigmoid()
    dvalue, dopen = dx.narrow(dim, 0, half), dx.narrow(dim, half, half)
    slope = gate * (1 - gate)
    of_value = dgrad_glu * gate + grad_glu * slope * dopen
    of_gate = slope * (dgrad_glu * value + grad_glu * dvalue + grad_glu * value * (1 - 2 * gate) * dopen)
    return torch.cat([of_value, of_gate], dim)


@decomposes(aten._masked_softmax.default)
def _masked_softmax(x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Any:
    dim = x.dim() - 1 if dim is None else dim
    return torch.softmax(x.masked_fill(_mask_of_scores(x, mask, mask_type), -math.inf), dim)


def _mask_of_scores(x: Tensor, mask: Tensor, mask_type: int | None) -> Tensor:
    """True where a score [batch, heads, queries, keys] does not count. Type 0: queries by keys; 1: batch by keys."""
    if mask_type == 0:
        mask = mask.view(1, 1, *mask.shape[-2:])
    elif mask_type == 1:
        mask = mask.view(x.shape[0], 1, 1, x.shape[-1])
    return mask.expand(x.shape)


@decomposes(aten._masked_softmax_backward.default)
def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Any:
    dim = output.dim() - 1 if dim is None else dim
    weighted = (grad_output * output).masked_fill(mask, 0.0)
    return (weighted - output * weighted.sum(dim, keepdim=True)).masked_fill(mask, 0.0)


@decomposes(aten._addmm_activation.default)
def _addmm_activation(
    x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Any:
    product = torch.addmm(x, mat1, mat2, beta=beta, alpha=alpha)
    return functional.gelu(product) if use_gelu else product.relu()


@decomposes(aten._add_relu.Tensor, aten._add_relu.Scalar)
def _add_relu(x: Tensor, other: Any, alpha: Any = 1) -> Any:
    return torch.add(x, other, alpha=alpha).relu()


@decomposes(aten._trilinear.default)
def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    for axis in sorted(expand1):
        i1 = i1.unsqueeze(axis)
    for axis in sorted(expand2):
        i2 = i2.unsqueeze(axis)
    for axis in sorted(expand3):
        i3 = i3.unsqueeze(axis)
    product = i1 * i2 * i3
    return product.sum(list(sumdim)) if sumdim else product
