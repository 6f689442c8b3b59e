"""Tensors as operators of a module take them, for ctypes. Without torch: a process under sanitizers uses it too."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

MAX_RANK = 16
# The numbers of module_abi.h by torch's names, and the bytes of an element.
NUMBERS = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
ITEM_SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 10: 16, 11: 1, 15: 2, 27: 2, 28: 4, 29: 8}
# Stands for no tensor.
ABSENT = -1


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

    @classmethod
    def of(cls, data: int, dtype: int, sizes: Sequence[int], strides: Sequence[int]) -> Descriptor:
        """A tensor at an address; strides count elements."""
        descriptor = cls(data=data, dtype=dtype, rank=len(sizes))
        descriptor.sizes[: len(sizes)] = sizes
        descriptor.strides[: len(sizes)] = strides
        return descriptor

    @classmethod
    def absent(cls) -> Descriptor:
        return cls(dtype=ABSENT)

    @property
    def layout(self) -> tuple[list[int], list[int]]:
        """Sizes and strides."""
        return list(self.sizes[: self.rank]), list(self.strides[: self.rank])

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last; strides are not negative."""
        return extent(*self.layout) * ITEM_SIZES[self.dtype]


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last that the strides reach."""
    return 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
