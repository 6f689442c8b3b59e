"""The gradients of outputs, while a call is traced with its backward.

They are inputs of the backward. An input of the trace would have sizes of its own, of which the trace would have to
find that they are those of an output; a result of this operator has them from the start. After the trace it becomes an
input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.torch_compat.operators import OpOverload


def _example(output: Tensor, number: int) -> Tensor:
    """Values for example calls, all different, from -1 to 1."""
    count = torch.arange(output.numel(), dtype=torch.float64)
    return torch.empty_like(output).copy_(torch.cos(count + number).view(output.shape))


def _fake(output: Tensor, number: int) -> Tensor:
    return torch.empty_like(output)


# No module calls it, so it is none of the operators that have kernels (ops/registry.py).
_library = torch.library.Library("aotpack", "FRAGMENT")
_library.define("output_gradient(Tensor output, int number) -> Tensor")
_library.impl("output_gradient", _example, "CompositeExplicitAutograd")
torch.library.register_fake("aotpack::output_gradient", _fake, lib=_library)
output_gradient: OpOverload = torch.ops.aotpack.output_gradient.default
"""The gradient of an output, which is leaf `number` of the result."""
