"""Losses.

Operators that only torch 2.13 has:
  torch.ops.torch_nn._linear_cross_entropy_batch_chunked, ..._no_reduction: what F.linear_cross_entropy calls
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.bounds import check_bounds


def margins_of_labels(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The multilabel margin loss of each row, and which classes of it are targets.

    Args:
        input: [N, C].
        target: [N, C], int64: classes up to the first -1; what follows does not count.
    """
    classes = input.shape[1]
    most = classes - 1 if isinstance(classes, int) else math.inf
    target = check_bounds(target, -1.0, most, "target out of range")
    index = torch.arange(classes, device=target.device)
    valid = index < torch.where(target == -1, index, classes).amin(-1, keepdim=True)
    picked = input.gather(1, torch.where(valid, target, 0))
    is_target = (torch.where(valid, target, -1)[:, :, None] == index).any(1)
    margin = torch.relu(1 - picked[:, :, None] + input[:, None, :])
    counted = valid[:, :, None] & ~is_target[:, None, :]
    return torch.where(counted, margin, 0).sum((1, 2)) / classes, is_target


@decomposes(aten.multilabel_margin_loss_forward.default)
def _multilabel_margin_loss(input: Tensor, target: Tensor, reduction: int) -> Any:
    losses, is_target = margins_of_labels(torch.atleast_2d(input), torch.atleast_2d(target))
    if reduction == 0:
        loss = losses if input.dim() == 2 else losses.squeeze(0)
    else:
        loss = losses.mean() if reduction == 1 else losses.sum()
    return loss, is_target.to(input.dtype).reshape(target.shape)


# ---- cross entropy of a linear layer's results -----------------------------------------------------------------------


def _rows(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """log softmax [N, C], in float32 at least; the weight of each row, and its target; both 0 where it is ignored."""
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    logits = torch.mm(input, linear_weight.to(input.dtype).T).to(wide)
    if linear_bias is not None:
        logits = logits + linear_bias.to(wide)
    kept = target != ignore_index
    target = torch.where(kept, target, 0)
    ones = torch.ones_like(target, dtype=wide)
    row_weight = torch.where(kept, ones if weight is None else weight.to(wide)[target], 0)
    return logits.log_softmax(1), row_weight, target


def _linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    *compute: bool,
) -> Any:
    """The loss, and its gradients by input, linear_weight and linear_bias where `compute` requests them."""
    if label_smoothing > 0 or reduction not in ("mean", "sum"):
        return NotImplemented
    log_softmax, row_weight, target = _rows(input, linear_weight, target, linear_bias, weight, ignore_index)
    loss = -(log_softmax.gather(1, target[:, None]).squeeze(1) * row_weight).sum()
    if reduction == "mean":
        total = row_weight.sum()
        loss = loss / total
        row_weight = row_weight / total
    of_logits = log_softmax.exp() - torch.nn.functional.one_hot(target, linear_weight.shape[0])
    of_logits = of_logits * row_weight[:, None]
    gradients: Sequence[tuple[bool, Any, int]] = (
        (compute[0], lambda: torch.mm(of_logits.to(input.dtype), linear_weight.to(input.dtype)), 2),
        (compute[1], lambda: torch.mm(of_logits.to(input.dtype).T, input), 2),
        (compute[2], lambda: of_logits.sum(0).to(input.dtype), 1),
    )
    return (
        loss.to(input.dtype),
        *(make() if wanted else input.new_empty((0,) * rank) for wanted, make, rank in gradients),
    )


def _linear_cross_entropy_rows(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Any:
    log_softmax, row_weight, target = _rows(input, linear_weight, target, linear_bias, weight, ignore_index)
    return (-log_softmax.gather(1, target[:, None]).squeeze(1) * row_weight).to(input.dtype)


try:
    importlib.import_module("torch.nn.modules.linear_cross_entropy")
except ImportError:
    pass
else:
    decomposes(torch.ops.torch_nn._linear_cross_entropy_batch_chunked.default)(_linear_cross_entropy)
    decomposes(torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default)(_linear_cross_entropy_rows)
