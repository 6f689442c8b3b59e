"""Embedding bags with the results that their backward reads, the backward, and tables with a maximum row norm."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.dtypes import wide
from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.embedding_bag import embedding_bag_full

_SUM, _MEAN, _MAX = range(3)


def _bags(
    every_offset: bool,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four results, with the sizes of ATen's: with `every_offset`, of sums the last offset too has a count."""
    arguments = (weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
    bags, bag_of, counts, sources = embedding_bag_full(*arguments)
    # ATen does not say where a sum's indices went when its fastest kernel takes it: the backward finds out itself.
    quick = (
        mode == _SUM and padding_idx < 0 and weight.dtype in (torch.float32, torch.float16) and weight.stride(1) == 1
    )
    if quick and (per_sample_weights is None or per_sample_weights.stride(0) == 1):
        bag_of = offsets.new_empty(0)
    counts = torch.zeros_like(counts) if mode == _SUM else counts
    if every_offset and include_last_offset and mode == _SUM:
        counts = torch.cat([counts, counts.new_zeros(1)])
    if mode != _MAX:
        sources = counts.clone()
    return bags, bag_of, counts, sources


decomposes(aten._embedding_bag.default)(functools.partial(_bags, False))
decomposes(aten._embedding_bag_forward_only.default)(functools.partial(_bags, True))


@decomposes(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if sparse:
        return NotImplemented
    if isinstance(offset2bag.shape[0], int) and offset2bag.shape[0] == 0:
        places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=offsets.device)
        starts = offsets[: gradient.shape[0]]
        offset2bag = (torch.searchsorted(starts, places, right=True) - 1).to(offsets.dtype)
    return aten._embedding_bag_dense_backward.default(
        gradient,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@decomposes(aten.embedding.default)
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    # Only a gradient is sparse, and that is its own operator.
    return aten.embedding.default(weight, indices, padding_idx, scale_grad_by_freq) if sparse else NotImplemented


@decomposes(aten.embedding_renorm.default)
def _embedding_renorm(table: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    used = torch.zeros(table.shape[0], dtype=torch.bool, device=table.device)
    used = used.index_put((indices.flatten(),), torch.ones((), dtype=torch.bool, device=table.device))
    computed = wide(table.dtype)
    norm = torch.linalg.vector_norm(table.to(computed), norm_type, dim=1)
    scale = torch.where(used & (norm > max_norm), max_norm / (norm.double() + 1e-7), 1.0).to(computed)
    return (table * scale[:, None]).to(table.dtype)
