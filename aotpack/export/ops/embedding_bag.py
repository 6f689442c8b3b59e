"""Embedding bags."""

from __future__ import annotations

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
