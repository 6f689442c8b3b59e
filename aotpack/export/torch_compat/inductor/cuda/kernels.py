"""Compiles the Triton kernels of a generated program, each with one configuration that is chosen without a GPU.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.async_compile.AsyncCompile.triton   its parameters
  torch._inductor.codecache.PyCodeCache.load
  torch._inductor.runtime.triton_heuristics.CachingAutotuner.{configs, precompile, launchers, save_gpu_kernel,
    inductor_meta}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CudaKernel:
    """A compiled kernel.

    Attributes:
        name: unique in its module.
        entry: its name in the device code.
        cubin: device code, an ELF file.
        ptx: its assembly, which newer GPUs compile.
    """

    name: str
    entry: str
    cubin: bytes
    ptx: str


class KernelCompiler:
    """Compiles kernels one by one, each with its first configuration, and leaves what the wrapper needs to know of each
    in TorchInductor's cache of kernels. Generated code uses it in place of `AsyncCompile`.

    Attributes:
        kernels: the compiled kernels.
    """

    def __init__(self) -> None:
        self.kernels: list[CudaKernel] = []

    def triton(self, name: str, source: str, device_str: str = "cuda") -> Any:
        """Compiles the kernel `name` of a generated source."""
        from torch._inductor.codecache import PyCodeCache

        tuner: Any = getattr(PyCodeCache.load(source), name)
        # The one that TorchInductor begins to tune with.
        tuner.configs = tuner.configs[:1]
        tuner.precompile()
        (launcher,) = tuner.launchers
        tuner.save_gpu_kernel(0, launcher)
        binary = launcher.bin
        self.kernels.append(
            CudaKernel(
                name=str(tuner.inductor_meta["kernel_name"]),
                entry=str(binary.metadata.name),
                cubin=bytes(binary.asm["cubin"]),
                ptx=str(binary.asm["ptx"]),
            )
        )
        return tuner
