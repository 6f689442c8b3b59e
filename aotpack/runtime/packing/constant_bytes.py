"""Constants in a `.safetensors` file: what each looks like there, and back in its layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aotpack.archive import Constant
from aotpack.archive.fields import extent, overlaps
from aotpack.archive.safetensors import DTYPE_NAMES
from aotpack.spec import DType

_Array = np.ndarray[Any, np.dtype[Any]]


def stored_as(constant: Constant) -> tuple[DType, tuple[int, ...]]:
    """The dtype and shape of the tensor in the file: those of the constant, unless its memory has gaps or elements in
    several places, or the format lacks the dtype; then its bytes.
    """
    size = math.prod(constant.shape)
    dense = constant.nbytes == size * constant.dtype.itemsize and extent(constant.shape, constant.stride) == size
    if constant.dtype in DTYPE_NAMES and dense and not overlaps(constant.shape, constant.stride):
        return constant.dtype, constant.shape
    return DType.UINT8, (constant.nbytes,)


def to_rows(constant: Constant, data: bytes | memoryview) -> memoryview:
    """The bytes of a constant in an archive, as they are in the file."""
    if not _is_permuted(constant):
        return memoryview(data)
    array = np.frombuffer(data, _unit(constant))
    return _bytes(np.lib.stride_tricks.as_strided(array, constant.shape, _strides(constant), writeable=False))


def row_major(constant: Constant, data: bytes | memoryview) -> memoryview:
    """The elements of a constant in an archive row by row, whatever its layout."""
    if 0 in constant.shape:
        return memoryview(b"")
    array = np.frombuffer(data, _unit(constant))
    return _bytes(np.lib.stride_tricks.as_strided(array, constant.shape, _strides(constant), writeable=False))


def from_rows(constant: Constant, data: bytes | memoryview) -> memoryview:
    """The bytes of a tensor in the file, as they are in an archive; those of bools are 0 and 1."""
    rows = np.frombuffer(data, _unit(constant) if _is_permuted(constant) else np.uint8)
    if constant.dtype is DType.BOOL:
        rows = (rows != 0).view(np.uint8)
    if not _is_permuted(constant):
        return _bytes(rows)
    room = np.empty(rows.size, rows.dtype)
    np.lib.stride_tricks.as_strided(room, constant.shape, _strides(constant))[...] = rows.reshape(constant.shape)
    return _bytes(room)


def _is_permuted(constant: Constant) -> bool:
    """Whether the rows of the tensor in the file are not its memory."""
    step, strides = 1, []
    for size in reversed(constant.shape):
        strides.append(step)
        step *= size
    wanted = zip(constant.shape, constant.stride, reversed(strides), strict=True)
    same = all(own == plain or size == 1 for size, own, plain in wanted)
    return stored_as(constant) == (constant.dtype, constant.shape) and step > 0 and not same


def _unit(constant: Constant) -> np.dtype[Any]:
    """Elements without a meaning, as large as those of the constant."""
    return np.dtype(f"V{constant.dtype.itemsize}" if constant.dtype is not DType.BOOL else "uint8")


def _strides(constant: Constant) -> tuple[int, ...]:
    return tuple(step * constant.dtype.itemsize for step in constant.stride)


def _bytes(array: _Array) -> memoryview:
    if array.size == 0:
        return memoryview(b"")
    raw: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # numpy's stubs do not declare the buffer
    return memoryview(raw)
