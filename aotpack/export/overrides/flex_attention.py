"""Attention with functions that change scores and mask them (`flex_attention`).

torch maps both functions over single positions by `vmap`, which torch.export does not follow; here they get tensors of
positions that broadcast, which for operators on single numbers is the same. What they compute stands in the graph
between `flex_scores` and `flex_softmax` (aotpack/export/ops/flex_attention.py). Where gradients are computed, torch's
formula over whole matrices of scores is traced instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from aotpack.export.ops.flex_attention import flex_scores, flex_softmax, scores_captured
from aotpack.export.overrides.table import replaces
from aotpack.export.torch_compat.functions import block_lists, flex_attention_formula, no_mask

# A block of this many positions stands for all of them.
_ALL = 1 << 30
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@replaces(flex_attention, "flex_attention_hop")
def _traced(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    lists, sizes = block_lists(block_mask)
    if not scores_captured() or not _fits(query, key, value, scale, sizes):
        return flex_attention_formula(
            query,
            key,
            value,
            score_mod,
            block_mask,
            scale,
            kernel_options,
            score_mod_other_buffers,
            mask_mod_other_buffers,
        )
    key, value = (t.expand(query.shape[0], *t.shape[1:]) for t in (key, value))
    scores = flex_scores(query, key, float(scale))
    positions = tuple(torch.arange(size, device=query.device) for size in scores.shape)
    over = _over_positions(score_mod, (0,), (None,) * len(score_mod_other_buffers))
    changed = over(scores, *positions, *score_mod_other_buffers).to(scores.dtype)
    mask, mask_mod = None, block_mask[-1]
    if mask_mod is not no_mask:
        mask = _over_positions(mask_mod, (), (None,) * len(mask_mod_other_buffers))(*positions, *mask_mod_other_buffers)
    if min(sizes) >= _ALL:
        lists, sizes = (), (0, 0)
    blocks = [tensor.to(torch.int32) for tensor in lists if tensor is not None]
    result, lse = flex_softmax(changed, mask, value, blocks, *sizes)
    # torch has it in units of log 2, and the greatest score of each row, which it does not return on CPUs.
    return result, lse / math.log(2), lse.new_empty(0)


def _fits(query: Tensor, key: Tensor, value: Tensor, scale: Any, sizes: tuple[int, int]) -> bool:
    alike = query.dtype == key.dtype == value.dtype
    known = isinstance(scale, (int, float)) and all(isinstance(size, int) for size in sizes)
    return alike and known and query.dtype in _DTYPES


@replaces(flex_attention, "_vmap_for_bhqkv")
def _over_positions(
    fn: Callable[..., Tensor],
    prefix: tuple[int | None, ...],
    suffix: tuple[int | None, ...] = (),
    out_dims: int | list[int | None] = 0,
    group_dim: bool = False,
) -> Callable[..., Tensor]:
    """`fn` of scores where `prefix` says so, then of positions of batch, head, query and key."""

    def mapped(*args: Tensor) -> Tensor:
        scores, (batch, head, query, key), others = (
            args[: len(prefix)],
            args[len(prefix) :][:4],
            args[len(prefix) + 4 :],
        )
        result = fn(*scores, batch[:, None, None, None], head[:, None, None], query[:, None], key, *others)
        return result.expand(batch.shape[0], head.shape[0], query.shape[0], key.shape[0])

    return mapped
