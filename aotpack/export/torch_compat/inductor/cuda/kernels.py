"""Compiles the Triton kernels of a generated program, each with one configuration that is chosen without a GPU.

Of TorchInductor's kernels and ours it is the first, with which TorchInductor begins to tune. Of a kernel of the user
it is the first one that compiles and whose blocks fit into the GPU's shared memory.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.async_compile.AsyncCompile.triton   its parameters
  torch._inductor.codecache.PyCodeCache.load
  torch._inductor.runtime.triton_heuristics.CachingAutotuner.{configs, precompile, launchers, save_gpu_kernel,
    inductor_meta, custom_kernel, compile_results}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotpack.errors import AotpackError, LoweringError
from aotpack.export.torch_compat.triton.early_starts import WAIT

# The type, in generated code, of what kernels take that read blocks of a matrix.
DESCRIPTOR = "StableTMADescriptor"

_BLOCK = re.compile(r"tensordesc<\w+\[(\d+), (\d+)\].*>")
_TF32 = re.compile(r"inputPrecision = tf32\b")


@dataclass(frozen=True)
class CudaKernel:
    """A compiled kernel.

    Attributes:
        name: unique in its module.
        entry: its name in the device code.
        cubin: device code, an ELF file.
        ptx: its assembly, which newer GPUs compile.
        waits: whether it waits itself for the kernels before it.
        tf32: whether it multiplies float32 in TF32, once.
        choice: of a kernel of the user with several configurations, the chosen one; "" otherwise.
        provider: the library that does its work where the host has it; "" if none does.
    """

    name: str
    entry: str
    cubin: bytes
    ptx: str
    waits: bool = False
    tf32: bool = False
    choice: str = ""
    provider: str = ""


class KernelCompiler:
    """Compiles kernels one by one, each with one configuration, and leaves what the wrapper needs to know of each in
    TorchInductor's cache of kernels. Generated code uses it in place of `AsyncCompile`.

    Args:
        shared_bytes: what a block may have of shared memory.

    Attributes:
        kernels: the compiled kernels.
    """

    def __init__(self, shared_bytes: int) -> None:
        self._shared_bytes = shared_bytes
        self.kernels: list[CudaKernel] = []

    def triton(self, name: str, source: str, device_str: str = "cuda") -> Any:
        """Compiles the kernel `name` of a generated source."""
        from torch._inductor.codecache import PyCodeCache

        tuner: Any = getattr(PyCodeCache.load(source), name)
        configs = list(tuner.configs)
        if not tuner.custom_kernel:
            tuner.configs = configs[:1]
            tuner.precompile()
        else:
            self._choose(tuner, name, configs)
        (launcher,) = tuner.launchers
        tuner.save_gpu_kernel(0, launcher)
        binary = launcher.bin
        _check_descriptors(tuner.triton_meta["signature"], binary.metadata)
        self.kernels.append(
            CudaKernel(
                name=str(tuner.inductor_meta["kernel_name"]),
                entry=str(binary.metadata.name),
                cubin=bytes(binary.asm["cubin"]),
                ptx=str(binary.asm["ptx"]),
                waits=WAIT in binary.asm["ptx"],
                # Products of halves may be marked, too; the others are there when three of them are meant.
                tf32=".tf32" in binary.asm["ptx"] and _TF32.search(str(binary.asm["ttir"])) is not None,
                choice=_words(launcher.config, len(configs)) if tuner.custom_kernel and len(configs) > 1 else "",
            )
        )
        return tuner

    def _choose(self, tuner: Any, name: str, configs: Sequence[Any]) -> None:
        """Compiles a kernel of the user with the first configuration that the GPU can run."""
        reasons = []
        for config in configs:
            tuner.configs, tuner.launchers, tuner.compile_results = [config], [], []
            try:
                tuner.precompile()
            except (AotpackError, MemoryError, OSError):
                raise
            except Exception as error:
                text = str(error).strip().rpartition("\n")[2]
                reasons.append(f"{_words(config)}: {type(error).__name__}: {text}")
                continue
            metadata = tuner.launchers[0].bin.metadata
            if metadata.shared > self._shared_bytes:
                reasons.append(f"{_words(config)}: {metadata.shared} bytes of shared memory, of {self._shared_bytes}")
            elif getattr(metadata, "global_scratch_size", 0):
                reasons.append(f"{_words(config)}: it needs scratch memory, as tl.make_tensor_descriptor does")
            else:
                return
        raise LoweringError(
            f"the Triton kernel {name} has no configuration that can be compiled for this target:\n"
            + "\n".join(f"  - {reason}" for reason in reasons),
            hint="add a configuration with smaller blocks or fewer stages to triton.autotune",
        )


def _check_descriptors(signature: Mapping[str, Any], metadata: Any) -> None:
    """csrc/module/device describes matrices as Triton reads them today: in rows of at most 128 bytes."""
    blocks = [_BLOCK.fullmatch(kind) for kind in signature.values() if str(kind).startswith("tensordesc")]
    for block, found in zip(blocks, getattr(metadata, "tensordesc_meta", None) or (), strict=False):
        item = found["elem_size"]
        row = None if block is None else min(int(block[2]) * item, 128)
        wanted = None if block is None or row is None else (row.bit_length() - 5, [int(block[1]), row // item])
        if wanted != (found["swizzle"], list(found["block_size"])):
            raise LoweringError(f"Triton reads blocks of matrices in another way: {dict(found)}")


def _words(config: Any, count: int = 1) -> str:
    """A configuration, and of how many it is one."""
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    text = ", ".join(f"{name}={value}" for name, value in {**config.kwargs, **options}.items())
    return f"{text} (of {count} configurations)" if count > 1 else text
