"""Functions, classes and kernels that models reach by torch's public API, and that torch has under private names.

Private interfaces touched (torch 2.11 to 2.13):
  torch.{_assert_async, _grouped_mm, _is_all_true, _sample_dirichlet, _standard_gamma}
  torch.nn.functional.{_canonical_mask, _verify_spatial_size}
  torch.nn.modules.batchnorm._BatchNorm
  torch._higher_order_ops.flex_attention.math_attention
  the tuple of torch.nn.attention.flex_attention.BlockMask.as_tuple: (…, kv_num_blocks, kv_indices, full_kv_num_blocks,
    full_kv_indices, …, block sizes, mask function), after two lengths
  torch._inductor.inductor_prims.seed
  torch._prims_common.suggest_memory_format
  torch.ao.quantization.fx._decomposed   defines quantized_decomposed, as TorchInductor imports it; its operators are
    Python functions of that module
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import math_attention as flex_attention_formula
from torch._prims_common import suggest_memory_format
from torch.ao.quantization.fx import _decomposed as quantized_definitions
from torch.nn import functional
from torch.nn.attention.flex_attention import noop_mask as no_mask
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

__all__ = [
    "BatchNorm",
    "assert_async",
    "block_lists",
    "canonical_mask",
    "flex_attention_formula",
    "grouped_mm",
    "inductor_seed",
    "is_all_true",
    "no_mask",
    "quantized_definitions",
    "sample_dirichlet",
    "standard_gamma",
    "suggest_memory_format",
    "verify_spatial_size",
]

assert_async: Any = torch._assert_async
grouped_mm: Any = torch._grouped_mm
is_all_true: Any = torch._is_all_true
sample_dirichlet: Any = torch._sample_dirichlet
standard_gamma: Any = torch._standard_gamma
canonical_mask: Any = functional._canonical_mask
verify_spatial_size: Any = functional._verify_spatial_size  # type: ignore[attr-defined]


def block_lists(block_mask: Sequence[Any]) -> tuple[tuple[Tensor | None, ...], tuple[int, int]]:
    """Of a `BlockMask` as a tuple: counts and indices of partial blocks and of full ones; the sizes of a block."""
    q_block, kv_block, _ = block_mask[-3:]
    return tuple(block_mask[2:6]), (q_block, kv_block)


def inductor_seed(device: torch.device) -> Tensor:
    """The operator by which TorchInductor takes a seed from the default generator."""
    # Only where it is called: importing TorchInductor takes a second.
    from torch._inductor import inductor_prims

    seed: Tensor = inductor_prims.seed(device)
    return seed
