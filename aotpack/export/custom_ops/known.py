"""Custom operators of packages whose implementations no trace can follow, by aotpack operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from aotpack.export.ops.grouped import grouped_mm, grouped_outer


def _grouped_mm(input: Tensor, weight: Tensor, offs: Tensor) -> Any:
    return grouped_mm(input, weight, offs)


def _grouped_mm_backward(input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor) -> Any:
    # As the operator states it, the gradient lies as the weight does; models pass transposed weights.
    if weight.stride(-1) == 1:
        of_weight = grouped_outer(input.t(), grad_output, offs)
    else:
        of_weight = grouped_outer(grad_output.t(), input, offs).transpose(1, 2)
    return grouped_mm(grad_output, weight.transpose(1, 2), offs), of_weight


# Source: transformers/integrations/moe.py (version 5), which takes torch's own operator for missing on some devices and
# dtypes; its loop runs over data-dependent numbers.
IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": _grouped_mm,
    "transformers::grouped_mm_fallback_backward": _grouped_mm_backward,
}
