"""The CTC loss, with lengths as data.

torch's own keeps a log alpha as large as the longest target, which only a call knows; here it has room for any.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.registry import define

aten = torch.ops.aten


def _width(targets: Tensor) -> Any:
    return 2 * targets.shape[-1] + 1


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    nll, alpha = aten._ctc_loss.Tensor(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    return nll, F.pad(alpha, (0, _width(targets) - alpha.shape[2]), value=-torch.inf)


def _ctc_loss_fake(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    steps, batch = log_probs.shape[:2]
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, _width(targets)))


ctc_loss = define(
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity) -> (Tensor, Tensor)",
    _ctc_loss,
    _ctc_loss_fake,
)


def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    nll: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    used = 2 * int(target_lengths.max()) + 1
    alpha = log_alpha[..., :used].contiguous()
    arguments = (grad, log_probs, targets, input_lengths, target_lengths, nll, alpha, blank, zero_infinity)
    gradient: Tensor = aten._ctc_loss_backward.Tensor(*arguments)
    return gradient.contiguous()


ctc_loss_backward = define(
    "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "Tensor nll, Tensor log_alpha, int blank, bool zero_infinity) -> Tensor",
    _ctc_loss_backward,
    lambda grad, log_probs, *rest: log_probs.new_empty(log_probs.shape),
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    log_probs, targets, input_lengths, target_lengths, ctx.blank, ctx.zero_infinity = inputs
    nll, alpha = output
    ctx.mark_non_differentiable(alpha)
    ctx.save_for_backward(log_probs, targets, input_lengths, target_lengths, nll, alpha)


def _gradient(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    gradient = ctc_loss_backward(grad, *saved, ctx.blank, ctx.zero_infinity)
    return gradient, None, None, None, None, None


torch.library.register_autograd(ctc_loss, _gradient, setup_context=_keep)
