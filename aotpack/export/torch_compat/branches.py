"""Results of `torch.cond`.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.cond._merge_output   replaced while a model is captured and lowered
  torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

__all__ = ["of_one_layout"]


def of_one_layout(original: Callable[..., Any]) -> Callable[..., Any]:
    """What a branch returns: where both functions return tensors of one layout, a tensor of this."""

    def merged(a: Any, b: Any, mode: Any) -> Any:
        if not _plain(a) or not _plain(b) or _layout(a) != _layout(b):
            return original(a, b, mode)
        with mode:
            return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device)

    return merged


def _plain(value: Any) -> bool:
    """Whether a value is a tensor with strides, all of whose sizes come from inputs."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized or value.is_conj():
        return False
    return not any(has_free_unbacked_symbols(number) for number in (*value.shape, *value.stride()))


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The sizes are expressions, because comparing sizes makes guards."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    values = (number.node.expr if isinstance(number, torch.SymInt) else number for number in numbers)
    return (tensor.dtype, tensor.device, *values)
