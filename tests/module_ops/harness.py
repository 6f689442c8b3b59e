"""Compiles the operators of a module with a test driver and calls them on torch tensors."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from aotpack.export import native

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "csrc" / "module"
KERNELS = ROOT / "csrc" / "kernels"
INCLUDES = [f"-I{MODULE}", f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'csrc'}"]
MAX_RANK = 16
DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
}
TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}


class Descriptor(ctypes.Structure):
    """aotpack_module_tensor of module_abi.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("block", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    ]


class OperatorError(Exception):
    """What an operator reported."""


def compile_driver(
    folder: Path,
    driver: str,
    groups: Sequence[str],
    defines: Sequence[str] = (),
    kernel_flags: Sequence[str] = ("-O2",),
) -> Path:
    """Builds `driver`.cpp with the operators of `groups` and all that they need into `folder`.

    Operators are built under UBSan, which ends the process at the first finding; kernels, whose own tests run under
    sanitizers, as `kernel_flags` say.
    """
    sources = [Path(__file__).with_name(f"{driver}.cpp"), *native.sources_for(_functions(groups))]
    flags = ["-std=c++20", "-g1", "-fPIC", "-fopenmp", "-Wall", "-Wextra", "-Werror", *(f"-D{d}" for d in defines)]
    sanitize = ["-fsanitize=undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]
    compiler = os.environ.get("CXX", "g++")
    objects, jobs = [], []
    for number, source in enumerate(sources):
        if len(jobs) >= 2:
            assert jobs.pop(0).wait() == 0
        how = kernel_flags if source.parent == KERNELS else ["-O1", *sanitize]
        objects.append(folder / f"{number}.o")
        jobs.append(subprocess.Popen([compiler, *flags, *how, *INCLUDES, "-c", str(source), "-o", str(objects[-1])]))
    assert all(job.wait() == 0 for job in jobs)
    library = folder / "driver.so"
    subprocess.run([compiler, *flags, *sanitize, "-shared", *map(str, objects), "-o", str(library)], check=True)
    return library


def _functions(groups: Sequence[str]) -> list[str]:
    return [function for function, group in native.operator_groups().items() if group in groups]


class Driver:
    """`driver("cumsum", [x], ints=[dim])` runs an operator and returns copies of its results with their strides."""

    def __init__(self, library: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._lib.driver_free.argtypes = [ctypes.c_void_p]
        self._lib.driver_live_blocks.restype = ctypes.c_int64

    def __call__(
        self,
        name: str,
        tensors: Sequence[torch.Tensor | None],
        ints: Sequence[int] = (),
        real: float = 0.0,
        text: str = "",
        threads: int = 1,
    ) -> list[torch.Tensor]:
        descriptors = (Descriptor * max(len(tensors), 1))(*(self._describe(t) for t in tensors))
        numbers = (ctypes.c_int64 * max(len(ints), 1))(*ints)
        results = (Descriptor * 4)()
        message = ctypes.create_string_buffer(1024)
        before = self._lib.driver_live_blocks()
        count = self._lib.driver_run(
            name.encode(),
            descriptors,
            len(tensors),
            numbers,
            len(ints),
            ctypes.c_double(real),
            text.encode(),
            threads,
            results,
            message,
            len(message),
        )
        outputs = [self._take(results[i]) for i in range(count)] if count >= 0 else []
        assert self._lib.driver_live_blocks() == before, f"{name} leaked memory"
        if count < 0:
            raise OperatorError(message.value.decode())
        return outputs

    @staticmethod
    def _describe(tensor: torch.Tensor | None) -> Descriptor:
        if tensor is None:
            return Descriptor(dtype=-1)
        descriptor = Descriptor(data=tensor.data_ptr(), dtype=DTYPES[tensor.dtype], rank=tensor.dim())
        descriptor.sizes[: tensor.dim()] = tensor.shape
        descriptor.strides[: tensor.dim()] = tensor.stride()
        return descriptor

    def _take(self, descriptor: Descriptor) -> torch.Tensor:
        sizes, strides = descriptor.sizes[: descriptor.rank], descriptor.strides[: descriptor.rank]
        dtype = TORCH_DTYPES[descriptor.dtype]
        result = torch.empty_strided(sizes, strides, dtype=dtype)
        extent = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if extent:
            ctypes.memmove(result.data_ptr(), descriptor.data, extent * result.element_size())
        if descriptor.block:
            self._lib.driver_free(descriptor.block)
        return result
