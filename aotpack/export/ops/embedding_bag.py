"""Embedding bags."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.registry import define

_BAG_MODES = ("sum", "mean", "max")


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    return F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=_BAG_MODES[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )


def _embedding_bag_fake(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    return weight.new_empty((offsets.shape[0] - int(include_last_offset), weight.shape[1]))


embedding_bag = define(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, int mode, Tensor? per_sample_weights, "
    "bool include_last_offset, int padding_idx) -> Tensor",
    _embedding_bag,
    _embedding_bag_fake,
)


def _embedding_bag_full(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    arguments = (weight, indices, offsets, False, mode, False, per_sample_weights, include_last_offset, padding_idx)
    bags, _, _, sources = torch.ops.aten._embedding_bag.default(*arguments)
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag_of = torch.searchsorted(offsets[: bags.shape[0]].contiguous(), places, right=True).to(offsets.dtype) - 1
    counts = torch.zeros(bags.shape[0], dtype=offsets.dtype)
    counts.index_add_(0, bag_of, (indices != padding_idx).to(offsets.dtype))
    return bags, bag_of, counts, sources.clone() if mode == 2 else offsets.new_empty(0)


def _embedding_bag_full_fake(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bags = offsets.shape[0] - int(include_last_offset)
    return (
        weight.new_empty((bags, weight.shape[1])),
        offsets.new_empty(indices.shape[0]),
        offsets.new_empty(bags),
        offsets.new_empty((bags, weight.shape[1]) if mode == 2 else 0),
    )


embedding_bag_full = define(
    "embedding_bag_full(Tensor weight, Tensor indices, Tensor offsets, int mode, Tensor? per_sample_weights, "
    "bool include_last_offset, int padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
    _embedding_bag_full,
    _embedding_bag_full_fake,
)
