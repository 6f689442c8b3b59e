"""Tensors of ONNX files, from the file itself or from files beside it. Data beside it is mapped, not read."""

from __future__ import annotations

import math
import os
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError

# Elements of a tensor that the file states without data for each of them (sparse ones).
MOST_ELEMENTS = 1 << 31


class TensorReader:
    """Reads tensors of a model.

    Args:
        folder: where files of external data are; None for a model that has no file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __call__(self, proto: onnx.TensorProto, raw: memoryview | None = None) -> torch.Tensor:
        """The tensor; `raw` are its elements where these are not in the message.

        Raises:
            OnnxError: its type is not supported, its data is missing or of another size, or lies outside of the folder
                of the model.
        """
        what = f"the tensor {proto.name!r}" if proto.name else "a tensor"
        if not dtypes.is_supported(proto.data_type):
            dtypes.torch_dtype(proto.data_type)
        if any(size < 0 for size in proto.dims):
            raise OnnxError(f"{what} has a negative size: {list(proto.dims)}")
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto, what)
        try:
            if raw is not None or proto.HasField("raw_data"):
                return self._raw(proto, proto.raw_data if raw is None else raw, what)
            array = numpy_helper.to_array(proto)
        except OnnxError:
            raise
        except Exception as error:
            raise OnnxError(f"{what} cannot be read: {error}") from error
        return _shared(np.array(array))

    def _raw(self, proto: onnx.TensorProto, data: bytes | memoryview, what: str) -> torch.Tensor:
        if proto.data_type not in _PLAIN:
            plain = TensorProto(data_type=proto.data_type, dims=proto.dims, raw_data=bytes(data))
            return _shared(np.array(numpy_helper.to_array(plain)))
        dtype = dtypes.torch_dtype(proto.data_type)
        needed = math.prod(proto.dims) * dtype.itemsize
        if len(data) != needed:
            raise OnnxError(f"{what} of {list(proto.dims)} needs {needed} bytes, the file has {len(data)}")
        if not needed:
            return torch.empty(list(proto.dims), dtype=dtype)
        return _no_view(_frombuffer(data, dtype).reshape(list(proto.dims)))

    def _external(self, proto: onnx.TensorProto, what: str) -> torch.Tensor:
        entries = {entry.key: entry.value for entry in proto.external_data}
        if self._folder is None:
            raise OnnxError(
                f"{what} is in another file, but the model was not read from a file",
                hint="pass the path of the model, or load the data with onnx.load_external_data_for_model",
            )
        path = self._path(entries.get("location", ""), what)
        dtype = dtypes.torch_dtype(proto.data_type)
        shape = list(proto.dims)
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries["length"]) if "length" in entries else None
        except ValueError as error:
            raise OnnxError(f"{what} has an invalid offset or length: {error}") from error
        packed = proto.data_type not in _PLAIN
        needed = numpy_bytes(proto) if packed else math.prod(shape) * dtype.itemsize
        size = path.stat().st_size
        if offset < 0 or (length is not None and length != needed) or offset + needed > size:
            raise OnnxError(
                f"{what} of {shape} needs {needed} bytes at {offset} of {path.name}, which has {size} bytes"
                + ("" if length in (None, needed) else f"; the model states {length}")
            )
        if not needed:
            return torch.empty(shape, dtype=dtype)
        # Copied when it is written to, which nothing does; torch has no tensors that are read-only.
        data: np.ndarray[Any, Any] = np.memmap(path, dtype=np.uint8, mode="c", offset=offset, shape=(needed,))
        if packed:
            plain = TensorProto(data_type=proto.data_type, dims=shape, raw_data=data.tobytes())
            return _shared(np.array(numpy_helper.to_array(plain)))
        if data.ctypes.data % dtype.itemsize:
            data = np.array(data)
        return _no_view(torch.from_numpy(data).view(dtype).reshape(shape))

    def _path(self, location: str, what: str) -> Path:
        assert self._folder is not None
        if not location or "\0" in location:
            raise OnnxError(f"{what} does not say in which file its data is")
        folder = self._folder.resolve()
        path = (folder / location).resolve()
        if os.path.isabs(location) or not path.is_relative_to(folder):
            raise OnnxError(
                f"{what} is in {location!r}, outside of the folder of the model",
                hint="put the files of data beside the model; links that leave its folder are not followed",
            )
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise OnnxError(
                f"{what} is in {location!r}, which cannot be read: {error.strerror}",
                hint="copy the files of data with the model",
            ) from error
        if not stat.S_ISREG(mode):
            raise OnnxError(f"{what} is in {location!r}, which is not a file")
        return path


def numpy_bytes(proto: onnx.TensorProto) -> int:
    """Bytes of a tensor with several elements in a byte."""
    bits = dtypes.bits_of(proto.data_type) or _BITS.get(proto.data_type, 8)
    count: int = math.prod(proto.dims)
    return (count * bits + 7) // 8


def _no_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of its own: torch.export also makes a fake tensor of what others are views of."""
    return tensor.data


def _shared(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return dtypes.from_numpy(array)


def _frombuffer(data: bytes | memoryview, dtype: torch.dtype) -> torch.Tensor:
    with warnings.catch_warnings():
        # That the memory is not to be written to.
        warnings.simplefilter("ignore", UserWarning)
        if dtype == torch.bool:
            return torch.frombuffer(data, dtype=torch.uint8) != 0
        return torch.frombuffer(data, dtype=dtype)


_BITS: dict[int, int] = {TensorProto.FLOAT4E2M1: 4, TensorProto.FLOAT6E2M3: 8, TensorProto.FLOAT6E3M2: 8}

# Types whose elements are whole bytes.
_PLAIN: frozenset[int] = frozenset(
    code for code in TensorProto.DataType.values() if dtypes.is_supported(code) and not dtypes.is_packed(code)
)
