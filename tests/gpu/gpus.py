"""The GPUs of this host, by the driver itself, and what their memory holds."""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import lru_cache
from typing import Any

import pytest

_MAJOR, _MINOR = 75, 76


@lru_cache(maxsize=1)
def _driver() -> Any:
    """None where there is none."""
    with contextlib.suppress(OSError):
        driver = ctypes.CDLL(os.environ.get("AOTPACK_LIBCUDA", "libcuda.so.1"))
        if driver.cuInit(0) == 0:
            return driver
    return None


def _capabilities() -> list[tuple[int, int]]:
    count = ctypes.c_int()
    if _driver() is None or _driver().cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [(_attribute(index, _MAJOR), _attribute(index, _MINOR)) for index in range(count.value)]


def _attribute(index: int, attribute: int) -> int:
    value = ctypes.c_int()
    assert _driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, _device(index)) == 0
    return value.value


def _device(index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    assert _driver().cuDeviceGet(ctypes.byref(device), index) == 0
    return device


CAPABILITIES = _capabilities()
needs_gpu = pytest.mark.skipif(not CAPABILITIES or CAPABILITIES[0] < (8, 0), reason="no GPU of capability 8.0 or later")
needs_two_gpus = pytest.mark.skipif(
    len(CAPABILITIES) < 2 or min(CAPABILITIES) < (8, 0), reason="no two GPUs of capability 8.0 or later"
)


@lru_cache(maxsize=8)
def _context(index: int) -> ctypes.c_void_p:
    """The primary context, which models use too; kept to the end of the process."""
    context = ctypes.c_void_p()
    assert _driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), _device(index)) == 0
    return context


def used_memory(index: int) -> int:
    """Bytes of a device's memory that are in use, by all processes."""
    free, total, popped = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    assert _driver().cuCtxPushCurrent_v2(_context(index)) == 0
    try:
        assert _driver().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    finally:
        _driver().cuCtxPopCurrent_v2(ctypes.byref(popped))
    return total.value - free.value


def resident_memory() -> int:
    """Bytes of this process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
