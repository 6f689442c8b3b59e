"""Draws with gradients: how a sample of a distribution moves with its parameters (Figurnov, Mohamed and Mnih, "Implicit
Reparameterization Gradients", 2018), by torch's approximations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.registry import define
from aotpack.export.torch_compat import functions

aten = torch.ops.aten


def _row_major(x: Tensor, *rest: Tensor) -> Tensor:
    return x.new_empty(x.shape)


standard_gamma_grad = define(
    "standard_gamma_grad(Tensor alpha, Tensor sample) -> Tensor",
    lambda alpha, sample: aten._standard_gamma_grad(alpha, sample).contiguous(),
    _row_major,
)
dirichlet_grad = define(
    "dirichlet_grad(Tensor x, Tensor alpha, Tensor total) -> Tensor",
    lambda x, alpha, total: aten._dirichlet_grad(x, alpha, total).contiguous(),
    _row_major,
)

# torch states no sizes of the operators that its gradients call where sizes vary, and has the gradient of a Dirichlet
# in an autograd.Function alone, which torch.export drops. These have their own.
sample_gamma = define(
    "sample_gamma(Tensor alpha) -> Tensor",
    lambda alpha: functions.standard_gamma(alpha),
    _row_major,
    tags=(torch.Tag.nondeterministic_seeded,),
)
sample_dirichlet = define(
    "sample_dirichlet(Tensor alpha) -> Tensor",
    lambda alpha: functions.sample_dirichlet(alpha),
    _row_major,
    tags=(torch.Tag.nondeterministic_seeded,),
)


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _of_gamma(ctx: Any, grad: Tensor) -> Tensor:
    result: Tensor = grad * standard_gamma_grad(*ctx.saved_tensors)
    return result


def _of_dirichlet(ctx: Any, grad: Tensor) -> Tensor:
    alpha, x = ctx.saved_tensors
    moved: Tensor = dirichlet_grad(x, alpha, alpha.sum(-1, True).expand_as(alpha))
    result: Tensor = moved * (grad - (x * grad).sum(-1, True))
    return result


torch.library.register_autograd(sample_gamma, _of_gamma, setup_context=_keep)
torch.library.register_autograd(sample_dirichlet, _of_dirichlet, setup_context=_keep)
