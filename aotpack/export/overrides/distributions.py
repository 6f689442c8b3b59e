"""Samples and checks of torch.distributions.

What they check of their parameters and of values becomes a check of the call, in words that are known when the model is
traced: torch's quote the values. Samples of a Gamma and of a Dirichlet, which others are made of, are drawn by
aotpack operators, which keep their gradients.

Relied on (torch 2.11 to 2.13):
  `is_all_true` is what Distribution.__init__ (with locals `param`, `constraint`) and the check of a sample (with
    `support`) ask of a tensor of bools before they raise
  `standard_gamma` and the replaced autograd.Function of Dirichlet are what torch.distributions draw by
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torch.distributions import Distribution, dirichlet

from aotpack.export.ops.sampler_gradients import sample_dirichlet, sample_gamma
from aotpack.export.overrides.table import overrides, replaces, sets
from aotpack.export.torch_compat.distributions import checks_parameters
from aotpack.export.torch_compat.functions import assert_async, is_all_true, standard_gamma

_SOURCE = inspect.getsourcefile(Distribution)


sets(Distribution, "_validate_args")(checks_parameters)


@overrides(is_all_true)
def _is_all_true(valid: Tensor) -> Any:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename != _SOURCE:
        frame = frame.f_back
    if frame is None:
        return NotImplemented
    known = frame.f_locals
    name = type(known.get("self")).__name__
    if "support" in known:
        message = f"Expected value argument to be within the support ({known['support']!r}) of the distribution {name}"
    else:
        message = (
            f"Expected parameter {known.get('param')} of distribution {name} to satisfy the constraint "
            f"{known.get('constraint')!r}, but found invalid values"
        )
    assert_async(valid.all(), message)
    return True


@overrides(standard_gamma)
def _standard_gamma(alpha: Tensor, generator: Any = None) -> Any:
    return NotImplemented if generator is not None else sample_gamma(alpha)


@replaces(dirichlet, "_Dirichlet")
class _Dirichlet:
    """In the place of torch's autograd.Function, whose backward torch.export drops."""

    @staticmethod
    def apply(concentration: Tensor) -> Tensor:
        return sample_dirichlet(concentration)  # type: ignore[no-any-return]
