"""Element types of ONNX as dtypes of torch.

Types that torch does not compute with, most of them of less than a byte, are held in a wider dtype that has all of
their values.
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
_NARROW: dict[int, torch.dtype] = {
    TensorProto.UINT4: torch.uint8,
    TensorProto.INT4: torch.int8,
    TensorProto.UINT2: torch.uint8,
    TensorProto.INT2: torch.int8,
    TensorProto.FLOAT4E2M1: torch.float8_e4m3fn,
    TensorProto.FLOAT6E2M3: torch.float8_e4m3fn,
    TensorProto.FLOAT6E3M2: torch.float8_e4m3fn,
    # Powers of two.
    TensorProto.FLOAT8E8M0: torch.bfloat16,
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
        if array.dtype.name in ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"):
            return torch.from_numpy(array.astype(np.float32)).to(torch.float8_e4m3fn)
        if array.dtype.name == "float8_e8m0fnu":
            return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
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


def is_packed(code: int) -> bool:
    """Whether the data of the file has another layout than the tensor that holds it."""
    return code in _NARROW


def bits_of(code: int) -> int | None:
    """Bits of an element that is smaller than a byte; None for others."""
    return _BITS.get(code)


_BITS: dict[int, int] = {TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2}


def code_of(dtype: torch.dtype) -> int:
    """The ONNX type of a dtype."""
    return next(code for code, known in _DTYPES.items() if known == dtype)
