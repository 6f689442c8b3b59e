"""Element types of ONNX as dtypes of torch.

Types of less than a byte are held one element in a byte: their values are those of the wider dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import TensorProto

from aotpack.export.onnx.base.errors import OnnxError

_DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.BOOL: torch.bool,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
}
# One element in a byte.
_NARROW: dict[int, torch.dtype] = {
    TensorProto.UINT4: torch.uint8,
    TensorProto.INT4: torch.int8,
    TensorProto.UINT2: torch.uint8,
    TensorProto.INT2: torch.int8,
}


def name_of(code: Any) -> str:
    """`FLOAT`, or the number of an unknown type."""
    try:
        return str(TensorProto.DataType.Name(code))
    except ValueError:
        return f"type {code}"


def is_supported(code: int) -> bool:
    return code in _DTYPES or code in _NARROW


def torch_dtype(code: int) -> torch.dtype:
    """The dtype that holds elements of an ONNX type.

    Raises:
        OnnxError: there is none.
    """
    found = _DTYPES.get(code) or _NARROW.get(code)
    if found is None:
        hint = "convert strings to numbers before the model" if code == TensorProto.STRING else None
        raise OnnxError(f"tensors of the element type {name_of(code)} are not supported", hint=hint)
    return found


def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor with the elements of an array, of numpy's dtypes or those of ml_dtypes; memory is shared if possible."""
    dtype = _BY_NUMPY.get(array.dtype.name)
    if dtype is None:
        if array.dtype.name in ("int4", "int2"):
            return torch.from_numpy(array.astype(np.int8))
        if array.dtype.name in ("uint4", "uint2"):
            return torch.from_numpy(array.astype(np.uint8))
        if array.dtype.kind not in "biufc":
            raise OnnxError(f"tensors of the element type {array.dtype.name} are not supported")
        return torch.from_numpy(array)
    plain = np.ascontiguousarray(array).view(np.uint16 if dtype.itemsize == 2 else np.uint8)
    return torch.from_numpy(plain).view(dtype).reshape(array.shape)


_BY_NUMPY = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}


def bits_of(code: int) -> int | None:
    """Bits of an element that is smaller than a byte; None for others."""
    return _BITS.get(code)


_BITS: dict[int, int] = {TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2}
