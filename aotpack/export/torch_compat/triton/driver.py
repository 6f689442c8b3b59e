"""Triton's driver for a GPU that need not be there: kernels are compiled for it, and nothing runs.

Private interfaces touched (triton 3.6 and 3.7):
  triton.runtime.driver.driver.{set_active, _active}, triton.backends.nvidia.driver.CudaDriver
  triton.compiler.compiler.max_shared_mem   its cache
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from aotpack.targets import GpuInfo

# Where tensors of programs for CUDA are.
DEVICE = torch.device("cuda", 0)


@contextlib.contextmanager
def triton_driver(gpu: GpuInfo) -> Iterator[None]:
    """While active, Triton compiles for this GPU."""
    from triton.compiler.compiler import max_shared_mem
    from triton.runtime.driver import driver

    before = driver._active
    driver.set_active(_driver(gpu))
    # Remembered for each device; here, device 0 is another GPU each time.
    max_shared_mem.cache_clear()
    try:
        yield
    finally:
        driver._active = before
        max_shared_mem.cache_clear()


def _driver(gpu: GpuInfo) -> Any:
    """Triton's driver with answers in place of libcuda's. TorchInductor replaces drivers of other classes."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    limits = {
        "max_shared_mem": gpu.shared_per_block,
        "max_num_regs": gpu.registers_per_multiprocessor,
        "multiprocessor_count": gpu.multiprocessors,
        "warpSize": gpu.warp,
        "sm_clock_rate": 1,
        "mem_clock_rate": 1,
        "mem_bus_width": 1,
    }
    # Module, function, registers, spills, threads of a block: of a kernel that is never launched.
    loaded = (0, 0, 0, 0, gpu.threads_per_block)

    class Driver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            # Without CudaDriver's own, which compiles a module against libcuda.
            self.utils = SimpleNamespace(
                get_device_properties=lambda _: limits,
                load_binary=lambda *_: loaded,
                unload_module=lambda *_: None,
                set_printf_fifo_size=lambda _: None,
            )
            self.launcher_cls = lambda *_: lambda *_, **__: None

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", gpu.architecture, gpu.warp)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None: ...

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
            return gpu.capability

        def get_active_torch_device(self) -> torch.device:
            return DEVICE

        @staticmethod
        def is_active() -> bool:
            return True

    return Driver()
