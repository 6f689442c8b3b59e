"""Losses that depend on values of their inputs.

`torch.nn.functional.gaussian_nll_loss` raises where a variance is negative; `ctc_loss` allocates by the longest target.
Calls of them become aotpack operators, which do so in a call of the archive. torch (2.11 to 2.13) traces
`multilabel_margin_loss` into operators that sum over what follows the first -1 of a target too: here it becomes others.

Relied on (torch 2.11 to 2.13): torch.nn.functional.gaussian_nll_loss looks at values by `torch.any` alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export.decompositions.nn.losses import margins_of_labels
from aotpack.export.ops.bounds import check_bounds
from aotpack.export.ops.ctc import ctc_loss
from aotpack.export.overrides.table import overrides
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied, returning

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


@overrides(functional.gaussian_nll_loss)
def _gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, *args: Any, **kwargs: Any) -> Any:
    if isinstance(var, Tensor):
        var = check_bounds(var, 0.0, math.inf, "var has negative entry/entries")
    elif var < 0:
        raise ValueError("var has negative entry/entries")
    with applied({places.ANY: returning(False)}):
        return functional.gaussian_nll_loss(input, target, var, *args, **kwargs)


@overrides(functional.ctc_loss, torch.ctc_loss)
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[Any],
    target_lengths: Tensor | Sequence[Any],
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """torch.ctc_loss by an aotpack operator. See the documentation of torch for the arguments."""
    how = _REDUCTIONS[reduction] if isinstance(reduction, str) else reduction
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
    inputs, lengths = _lengths(input_lengths, log_probs), _lengths(target_lengths, log_probs)
    loss: Tensor = ctc_loss(log_probs, targets, inputs, lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = torch.where(loss == math.inf, torch.zeros_like(loss), loss)
    if how == 1:
        return (loss / lengths.clamp_min(1).to(loss.dtype)).mean()
    if how == 2:
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _lengths(lengths: Tensor | Sequence[Any], log_probs: Tensor) -> Tensor:
    if isinstance(lengths, Tensor):
        if lengths.is_floating_point() or lengths.is_complex():
            raise RuntimeError("input_lengths and target_lengths must be integral")
        return lengths.reshape(-1).to(torch.int64)
    each = [torch.full((1,), length, dtype=torch.int64, device=log_probs.device) for length in lengths]
    return torch.cat(each) if each else torch.empty(0, dtype=torch.int64, device=log_probs.device)


@overrides(functional.multilabel_margin_loss)
def _multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    losses, _ = margins_of_labels(torch.atleast_2d(input), torch.atleast_2d(target))
    if reduction == "none":
        return losses if input.dim() == 2 else losses.squeeze(0)
    return losses.mean() if reduction == "mean" else losses.sum()
