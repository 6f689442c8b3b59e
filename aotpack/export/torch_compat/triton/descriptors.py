"""Launches of Triton kernels that take descriptors of matrices (TMA), in programs: torch.library.wrap_triton has none.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.triton_kernel_wrap.{triton_kernel_wrapper_mutation, kernel_side_table,
    create_tma_stable_metadata}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_OPTIONS = ("num_warps", "num_stages")


def launch_with_descriptors(
    kernel: Any, grid: tuple[Any, ...], arguments: Mapping[str, Any], blocks: Mapping[str, tuple[int, int]]
) -> None:
    """Launches a kernel, or puts the launch into the program that is traced.

    Args:
        kernel: a function with `triton.jit`.
        grid: how many blocks there are in each dim.
        arguments: by the names of the kernel's parameters; with `num_warps` and `num_stages`.
        blocks: rows and columns of the blocks of those that are descriptors.
    """
    from torch._higher_order_ops.triton_kernel_wrap import (
        create_tma_stable_metadata,
        kernel_side_table,
        triton_kernel_wrapper_mutation,
    )
    from triton import Config, autotune

    options = {name: arguments[name] for name in _OPTIONS}
    values = {name: value for name, value in arguments.items() if name not in options}
    graphable = {k: v for k, v in values.items() if isinstance(v, (Tensor, torch.SymInt, torch.SymFloat))}
    constants = {k: v for k, v in values.items() if k not in graphable}
    triton_kernel_wrapper_mutation(
        kernel_idx=kernel_side_table.add_kernel(autotune(configs=[Config({}, **options)], key=[])(kernel)),
        constant_args_idx=kernel_side_table.add_constant_args(constants),
        grid=[(*grid, 1, 1)[:3]],
        tma_descriptor_metadata={name: create_tma_stable_metadata(list(block)) for name, block in blocks.items()},
        kwargs=graphable,
    )
