"""A GPU that code generation finds in place of the host's: the target's, also where the host has another one or none.

Private interfaces touched (torch 2.11 to 2.13):
  torch.cuda.{is_available, device_count, ...}   what the host has; torch accepts no description of another GPU
  torch.version.cuda
  torch._dynamo.device_interface.{CudaInterface, device_interfaces, get_interface_for_device}
  torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init
  torch.utils._triton, torch._inductor.utils, torch._inductor.runtime.hints.DeviceProperties   functions with caches
  triton.runtime.driver.driver.{set_active, _active}, triton.backends.nvidia.driver.CudaDriver
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from aotpack.export.torch_compat.inductor_patch_table import CUDA_QUERIES
from aotpack.export.torch_compat.patches import always, applied, returning
from aotpack.targets import GpuInfo

_MODULES_WITH_CACHES = ("torch.utils._triton", "torch._inductor.utils", "torch._inductor.runtime.hints")

# Where tensors of programs for CUDA are.
DEVICE = torch.device("cuda", 0)
# What the generated code is for; it takes part in no decision but whether torch has CUDA at all.
_CUDA_VERSION = "13.0"


def properties(gpu: GpuInfo) -> SimpleNamespace:
    """The GPU as `torch.cuda.get_device_properties` describes one."""
    return SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        multi_processor_count=gpu.multiprocessors,
        shared_memory_per_multiprocessor=gpu.shared_per_multiprocessor,
        shared_memory_per_block=gpu.shared_per_block_default,
        shared_memory_per_block_optin=gpu.shared_per_block,
        L2_cache_size=gpu.l2_bytes,
        total_memory=gpu.memory_bytes,
        regs_per_multiprocessor=gpu.registers_per_multiprocessor,
        max_threads_per_multi_processor=gpu.threads_per_multiprocessor,
        max_threads_per_block=gpu.threads_per_block,
        warp_size=gpu.warp,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


@contextlib.contextmanager
def fake_gpu(gpu: GpuInfo) -> Iterator[None]:
    """While active, torch and Triton find this GPU as device 0, and no other. Nothing can run on it."""
    from torch._dynamo import device_interface

    found = properties(gpu)
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": gpu.capability,
        "get_device_properties": found,
        "get_device_name": gpu.name,
        "mem_get_info": (gpu.memory_bytes, gpu.memory_bytes),
        "is_bf16_supported": True,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "synchronize": None,
        "get_rng_state": torch.get_rng_state(),
        "set_rng_state": None,
    }
    assert answers.keys() == dict(CUDA_QUERIES).keys()
    # Registers the interfaces that torch has; later it would replace the one below.
    device_interface.get_interface_for_device("cpu")
    replacements: dict[str, Callable[[Any], Any]] = {
        **{f"torch.cuda:{name}": returning(answer) for name, answer in answers.items()},
        "torch.version:cuda": always(_CUDA_VERSION),
        "torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init": always(property(lambda _: True)),
        "torch._dynamo.device_interface:device_interfaces": lambda known: {**known, "cuda": _interface(answers)},
    }
    with applied(replacements), _triton_driver(gpu):
        _forget_devices()
        try:
            yield
        finally:
            _forget_devices()


def _forget_devices() -> None:
    """Clears what torch remembers of devices: which there are, what they can do, whether Triton has one."""
    for name in _MODULES_WITH_CACHES:
        module = importlib.import_module(name)
        for value in [*vars(module).values(), getattr(getattr(module, "DeviceProperties", None), "create", None)]:
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()


def _interface(answers: dict[str, Any]) -> type:
    """torch's interface of CUDA devices with these answers."""
    from torch._dynamo.device_interface import CudaInterface

    def answer(value: Any) -> Any:
        return staticmethod(lambda *_, **__: value)

    found, capability = answers["get_device_properties"], answers["get_device_capability"]
    worker: Any = type(
        "Worker",
        (CudaInterface.Worker,),
        {"get_device_properties": answer(found), "current_device": answer(0), "set_device": answer(None)},
    )
    return type(
        "FakeCudaInterface",
        (CudaInterface,),
        {
            "Worker": worker,
            "current_device": answer(0),
            "set_device": answer(None),
            "device_count": answer(1),
            "is_available": answer(True),
            "get_device_properties": answer(found),
            "get_compute_capability": answer(capability[0] * 10 + capability[1]),
            "is_triton_capable": answer(True),
            "raise_if_triton_unavailable": answer(None),
            "get_raw_stream": answer(0),
            "exchange_device": answer(0),
            "maybe_exchange_device": answer(0),
            "synchronize": answer(None),
            "memory_allocated": answer(0),
            "is_bf16_supported": answer(True),
        },
    )


@contextlib.contextmanager
def _triton_driver(gpu: GpuInfo) -> Iterator[None]:
    from triton.runtime.driver import driver

    before = driver._active
    driver.set_active(_driver(gpu))
    try:
        yield
    finally:
        driver._active = before


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
