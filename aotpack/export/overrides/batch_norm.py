"""Batch norm with a cumulative average: `momentum=None` takes the number of batches out of its tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from aotpack.export.overrides.table import replaces
from aotpack.export.torch_compat.functions import BatchNorm

_ORIGINAL = BatchNorm.forward


@replaces(BatchNorm, "forward")
def _forward(self: Any, input: Tensor) -> Tensor:
    averages = self.training and self.track_running_stats and self.momentum is None
    if not averages or self.num_batches_tracked is None:
        return _ORIGINAL(self, input)
    self._check_input_dim(input)
    self.num_batches_tracked.add_(1)
    share = 1.0 / self.num_batches_tracked.to(torch.float64)
    dims = [dim for dim in range(input.dim()) if dim != 1]
    values = input.detach().to(self.running_mean.dtype)
    for running, now in ((self.running_mean, values.mean(dims)), (self.running_var, values.var(dims))):
        running.add_((now - running) * share.to(running.dtype))
    return functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
