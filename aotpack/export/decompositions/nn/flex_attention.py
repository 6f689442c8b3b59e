"""Attention whose scores functions of the model change, where no kernel has these inside: whole matrices of scores."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from aotpack.export.decompositions.table import decomposes
from aotpack.export.ops.flex_attention import flex_scores, flex_softmax, plain_scores, plain_softmax


@decomposes(flex_scores)
def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return plain_scores(q, k, scale)


@decomposes(flex_softmax)
def _softmax(
    scores: Tensor, mask: Tensor | None, v: Tensor, blocks: Sequence[Tensor], q_block: int, kv_block: int
) -> tuple[Tensor, Tensor]:
    return plain_softmax(scores, mask, v)
