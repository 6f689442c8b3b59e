"""A GPU that code generation finds in place of the host's: the target's, also where the host has another one or none.

Private interfaces touched (torch 2.11 to 2.13):
  torch.cuda.{is_available, device_count, ...}   what the host has; torch accepts no description of another GPU
  torch.version.cuda
  torch._dynamo.device_interface.{CudaInterface, device_interfaces, get_interface_for_device}
  torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init, .init_gpu_context
  torch.utils._triton, torch._inductor.utils, torch._inductor.runtime.hints.DeviceProperties   functions with caches
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
from aotpack.export.torch_compat.triton.driver import triton_driver
from aotpack.targets import GpuInfo

_MODULES_WITH_CACHES = ("torch.utils._triton", "torch._inductor.utils", "torch._inductor.runtime.hints")

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
        # In torch's builds for CUDA it initializes the device, which hosts that only build do not have.
        "torch._subclasses.fake_tensor:init_gpu_context": returning(None),
        "torch._dynamo.device_interface:device_interfaces": lambda known: {**known, "cuda": _interface(answers)},
    }
    with applied(replacements), triton_driver(gpu):
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
