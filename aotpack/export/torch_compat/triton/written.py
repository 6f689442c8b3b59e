"""Which of its tensors a Triton kernel writes to, by the code that Triton makes of it.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.triton_kernel_wrap.identify_accessed_tensors   before torch 2.12 identify_mutated_tensors,
    which returns the names
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from aotpack.export.torch_compat.triton.driver import triton_driver
from aotpack.export.torch_compat.triton.launches import Launch
from aotpack.targets import BY_NAME

# What a kernel writes to does not depend on the GPU.
_TARGET = "cuda-sm_80"
_LOGGER = "torch._higher_order_ops.triton_kernel_wrap"


def written(launch: Launch) -> tuple[str, ...]:
    """The tensors among the arguments that the kernel may write to, in the order of its parameters: all of them where
    Triton cannot say.
    """
    from torch._higher_order_ops import triton_kernel_wrap

    older: Any = getattr(triton_kernel_wrap, "identify_mutated_tensors", None)
    identify: Any = getattr(triton_kernel_wrap, "identify_accessed_tensors", older)
    gpu = BY_NAME[_TARGET].gpu
    assert gpu is not None
    values: dict[str, Any] = {**launch.arguments, **launch.configurations[0].constants}
    logger = logging.getLogger(_LOGGER)
    before = logger.disabled
    logger.disabled = True
    try:
        with triton_driver(gpu):
            accesses: Any = identify(launch.kernel, values, {})
    finally:
        logger.disabled = before
    writes = getattr(getattr(accesses, "read_writes", None), "writes", None)
    names = {dep.name for dep in writes} if writes is not None else set(accesses)
    return tuple(name for name, value in launch.arguments.items() if isinstance(value, torch.Tensor) and name in names)
