"""Instance norms that keep running statistics: torch writes to these, but its operator's schema does not say so."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export.overrides.table import overrides
from aotpack.export.torch_compat.functions import verify_spatial_size


@overrides(torch.instance_norm)
def _instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if not use_input_stats or running_mean is None or running_var is None:
        return torch.instance_norm(
            input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled
        )
    result = torch.instance_norm(input, weight, bias, None, None, True, momentum, eps, cudnn_enabled)
    with torch.no_grad():
        values = input.detach().flatten(2)
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        # The statistics of each instance move those of its channel; the results are averaged over the batch.
        for running, seen in ((running_mean, values.mean(2)), (running_var, values.var(2))):
            running.copy_((1 - momentum) * running + momentum * seen.mean(0).to(running.dtype))
    return result


@overrides(functional.instance_norm)
def _functional(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if use_input_stats:
        verify_spatial_size(input.size())
    result: Tensor = _instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
    )
    return result
