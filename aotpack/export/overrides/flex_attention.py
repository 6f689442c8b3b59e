"""Attention with functions that change scores and mask them (`flex_attention`).

In a trace torch's formula over whole matrices of scores is computed, in which code generation inlines both functions.
torch maps these over single positions by `vmap`, which torch.export does not follow; here they get tensors of positions
that broadcast, which for operators on single numbers is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.attention import flex_attention

from aotpack.export.overrides.table import replaces
from aotpack.export.torch_compat.functions import flex_attention_formula


@replaces(flex_attention, "flex_attention_hop")
def _formula(*args: Any, **kwargs: Any) -> Any:
    return flex_attention_formula(*args, **kwargs)


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
