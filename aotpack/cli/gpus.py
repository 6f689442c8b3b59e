"""The CUDA driver and the GPUs of this machine, as the runtime finds them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from aotpack.errors import DeviceError

# As kOldestDriver of csrc/runtime/hal/cuda/driver_functions.h.
OLDEST_DRIVER = 12000

_NO_DEVICE = 100
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


class NoDriverError(DeviceError):
    """There is no CUDA driver."""


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, compute capability such as (9, 0), and memory in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int


def version_text(version: int) -> str:
    """12040 → "12.4"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def find_gpus() -> tuple[int, list[Gpu]]:
    """The version of the CUDA driver, as it counts, and the GPUs in the order of their numbers.

    Raises:
        NoDriverError: there is no CUDA driver.
        DeviceError: the driver is too old, finds no device, or reports an error.
    """
    path = os.environ.get("AOTPACK_LIBCUDA") or "libcuda.so.1"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise NoDriverError(f"no CUDA driver was found: {error}") from None

    def call(function: str, *arguments: object) -> None:
        try:
            result = getattr(library, function)(*arguments)
        except AttributeError:
            raise DeviceError(f"{path} lacks the function {function} of the CUDA driver") from None
        if result == _NO_DEVICE:
            raise DeviceError("the CUDA driver finds no device", hint="check nvidia-smi and CUDA_VISIBLE_DEVICES")
        if result:
            raise DeviceError(f"{function} of the CUDA driver fails with error {result}", hint="check nvidia-smi")

    version = ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    if version.value < OLDEST_DRIVER:
        raise DeviceError(
            f"the CUDA driver is too old: it supports CUDA {version_text(version.value)}",
            hint=f"install a driver for CUDA {version_text(OLDEST_DRIVER)} or later",
        )
    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise DeviceError("the CUDA driver finds no device", hint="check nvidia-smi and CUDA_VISIBLE_DEVICES")
    gpus = []
    for index in range(count.value):
        device, major, minor, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(256)
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDeviceGetName", name, len(name) - 1, device)
        call("cuDeviceGetAttribute", ctypes.byref(major), _CAPABILITY_MAJOR, device)
        call("cuDeviceGetAttribute", ctypes.byref(minor), _CAPABILITY_MINOR, device)
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        gpus.append(Gpu(name.value.decode(errors="replace"), (major.value, minor.value), memory.value))
    return version.value, gpus
