"""Compiles the operators of a module with a test driver and calls them on torch tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from aotpack.building import native_sources
from aotpack.building.cache import BuildCache
from aotpack.building.flags import includes
from tests.support.operators.descriptors import Descriptor
from tests.support.operators.dtypes import DTYPES, TORCH_DTYPES
from tests.support.operators.library import link_library

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "csrc" / "module"
KERNELS = ROOT / "csrc" / "kernels"
INCLUDES = includes([MODULE, ROOT / "csrc" / "include", ROOT / "csrc"])
# The fixture `make_driver`: what compile_driver takes after the folder → Driver.
MakeDriver = Callable[..., "Driver"]


class OperatorError(Exception):
    """What an operator reported."""


def compile_driver(
    cache: BuildCache, folder: Path, driver: str, groups: Sequence[str], kernel_flags: Sequence[str] | None = None
) -> Path:
    """Builds `driver`.cpp with the operators of `groups` and all that they need into `folder`.

    All of it is built under UBSan, which ends the process at the first finding; kernels as `kernel_flags` say where
    these are given. Operators note their calls where they are asked to (csrc/module/trace.h).
    """
    common = ["-std=c++20", "-g1", "-fPIC", "-fopenmp", "-Wall", "-Wextra", "-Werror", "-DAOTPACK_TRACE", *INCLUDES]
    sanitize = ["-fsanitize=undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]

    def flags(source: Path) -> list[str]:
        if source.parent != KERNELS:
            # Optimised a little: some warnings come of it, and nothing else compiles these with warnings. -Og has them
            # too and compiles in half the time of -O1.
            return [*common, "-Og", *sanitize]
        return [*common, *(["-O0", *sanitize] if kernel_flags is None else kernel_flags)]

    source = Path(__file__).with_name(f"{driver}.cpp")
    return link_library(cache, folder / f"{driver}.so", source, _functions(groups), flags)


def _functions(groups: Sequence[str]) -> list[str]:
    return [function for function, group in native_sources.operator_groups().items() if group in groups]


class Driver:
    """`driver("cumsum", [x], ints=[dim])` runs an operator and returns copies of its results with their strides."""

    def __init__(self, library: Path) -> None:
        self._lib = ctypes.CDLL(str(library))
        self._lib.operators_release.argtypes = [ctypes.c_void_p]
        self._lib.operators_live_blocks.restype = ctypes.c_int64

    def __call__(
        self,
        name: str,
        tensors: Sequence[torch.Tensor | None],
        ints: Sequence[int] = (),
        real: float = 0.0,
        text: str = "",
        threads: int = 1,
        *,
        copied: bool = True,
    ) -> list[torch.Tensor]:
        """`copied=False`: for results that are arguments and span more memory than there is."""
        descriptors = (Descriptor * max(len(tensors), 1))(*(self._describe(t) for t in tensors))
        numbers = (ctypes.c_int64 * max(len(ints), 1))(*ints)
        results = (Descriptor * 4)()
        message = ctypes.create_string_buffer(1024)
        before = self._lib.operators_live_blocks()
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
        outputs = [self._take(results[i]) for i in range(count)] if count >= 0 and copied else []
        assert self._lib.operators_live_blocks() == before, f"{name} leaked memory"
        if count < 0:
            raise OperatorError(message.value.decode())
        return outputs

    @staticmethod
    def _describe(tensor: torch.Tensor | None) -> Descriptor:
        if tensor is None:
            return Descriptor.absent()
        return Descriptor.of(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.shape, tensor.stride())

    def _take(self, descriptor: Descriptor) -> torch.Tensor:
        sizes, strides = descriptor.layout
        result = torch.empty_strided(sizes, strides, dtype=TORCH_DTYPES[descriptor.dtype])
        ctypes.memmove(result.data_ptr(), descriptor.data, descriptor.nbytes)
        if descriptor.block:
            self._lib.operators_release(descriptor.block)
        return result
