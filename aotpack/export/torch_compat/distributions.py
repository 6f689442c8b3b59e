"""Whether torch.distributions check their parameters.

Private interfaces touched (torch 2.11 to 2.13):
  torch.distributions.Distribution._validate_args
  torch._dynamo.eval_frame.TorchPatcher.patch   turns all checks of distributions off permanently
"""

from __future__ import annotations

import sys

from torch.distributions import Distribution


def _dynamo_was_used() -> bool:
    patcher = sys.modules.get("torch._dynamo.eval_frame")
    return patcher is not None and patcher.TorchPatcher.patch.cache_info().currsize > 0


# As the user has it, unless TorchDynamo was at work before this package was imported.
_CHECKED: bool = __debug__ if _dynamo_was_used() else Distribution._validate_args


def checks_parameters() -> bool:
    """Whether distributions check their parameters, as the user has it: TorchDynamo turns that off for the process."""
    # What a model computes must not depend on what else was compiled before.
    return _CHECKED if _dynamo_was_used() else Distribution._validate_args
