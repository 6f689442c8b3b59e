"""The device guard of CUDA devices, which torch has only where it is built for CUDA.

Some operators set the current device even for fake tensors, for instance `nonzero`. torch registers guards from C++
alone; `torch.utils` has one from Python for the device `privateuseone` only. So a guard that does nothing is compiled,
once for a compiler and a version of torch.

Private interfaces touched (torch 2.11 to 2.13):
  c10/core/impl/DeviceGuardImplInterface.h   c10::impl::{NoOpDeviceGuardImpl, device_guard_impl_registry}
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import cache as once
from pathlib import Path

import torch

from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.compiler import Compiler
from aotpack.building.temporary import private_folder
from aotpack.errors import CompileError
from aotpack.export.torch_compat.patches import exclusive

_SOURCE = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace {
constexpr auto kCuda = c10::DeviceType::CUDA;
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kCuda> {
  c10::Device getDevice() const override { return c10::Device(kCuda, 0); }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(kCuda, 0); }
};
auto& slot() { return c10::impl::device_guard_impl_registry[static_cast<size_t>(kCuda)]; }
}
extern "C" const void* aotpack_own_guard() {
  static const Guard guard;
  return &guard;
}
extern "C" const void* aotpack_exchange_guard(const void* guard) {
  return slot().exchange(static_cast<const c10::impl::DeviceGuardImplInterface*>(guard));
}
"""


@contextlib.contextmanager
def cuda_device_guard(cache: BuildCache, compiler: Compiler) -> Iterator[None]:
    """While active, operators on fake tensors of CUDA devices find a device guard, which does nothing.

    Raises:
        CompileError: the compiler cannot compile against torch's headers.
    """
    library = _library(cache, compiler)
    before = _exchange(library, library.aotpack_own_guard())
    try:
        yield
    finally:
        _exchange(library, before)


@exclusive
def _exchange(library: ctypes.CDLL, guard: int | None) -> int | None:
    found: int | None = library.aotpack_exchange_guard(guard)
    return found


def _library(cache: BuildCache, compiler: Compiler) -> ctypes.CDLL:
    key = digest_of(["device guard", compiler.identity, torch.__version__, _SOURCE])
    return _load(cache.content(key, ".so", lambda output: _compile(compiler, output)))


@once
def _load(content: bytes) -> ctypes.CDLL:
    with private_folder() as folder:
        path = folder / "guard.so"
        path.write_bytes(content)
        library = ctypes.CDLL(str(path))
    for function, arguments in ((library.aotpack_own_guard, []), (library.aotpack_exchange_guard, [ctypes.c_void_p])):
        function.argtypes, function.restype = arguments, ctypes.c_void_p
    return library


def _compile(compiler: Compiler, output: Path) -> None:
    root = Path(torch.__file__).parent
    with private_folder() as folder:
        (folder / "guard.cpp").write_text(_SOURCE)
        flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-isystem", str(root / "include"), "guard.cpp"]
        done = compiler.run([*flags, str(root / "lib" / "libc10.so"), "-o", str(output)], cwd=folder)
    if done.returncode != 0:
        shown = "\n".join(done.stderr.splitlines()[:8])
        raise CompileError(f"compiling against torch's headers failed:\n{shown}")
