"""The C interface (csrc/include/aotpack/aotpack.h) through ctypes: loading, calls, state and updates on numpy arrays.

It declares what it uses by hand, as a program that was compiled against an earlier header does. Imports no torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import aotpack

Array = npt.NDArray[Any]

_CPU = 1
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_OTHERS = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8)}
_VERIFY_FULL = 1
_UPDATE_PARTIAL = 1


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensorVersioned(ctypes.Structure):
    pass


DLManagedTensorVersioned._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(DLManagedTensorVersioned))),
    ("flags", ctypes.c_uint64),
    ("dl_tensor", DLTensor),
]


class LoadOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("verify", ctypes.c_int),
        ("mode", ctypes.c_int),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
    ]


class DimInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_int64),
        ("multiplier", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("min", ctypes.c_int64),
        ("max", ctypes.c_int64),
        ("multiple_of", ctypes.c_int64),
        ("expression", ctypes.c_char_p),
    ]


class ValueInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", DLDataType),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.POINTER(DimInfo))),
        ("mutated", ctypes.c_bool),
        ("number", ctypes.c_int),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
    ]


class UpdateOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("num_threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("flags", ctypes.c_uint64),
        ("deltas", ctypes.c_void_p),
        ("delta_count", ctypes.c_size_t),
    ]


class CError(Exception):
    """A status other than OK; `code` is its name, such as "INVALID_ARGUMENT"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class CModel:
    """A loaded archive and one context of it.

    Raises (from every method):
        CError: the library returned a status.
    """

    def __init__(self, path: Path, device: tuple[int, int] = (_CPU, 0)) -> None:
        self._lib = _library()
        self._model, self._context = ctypes.c_void_p(), ctypes.c_void_p()
        options = LoadOptions(ctypes.sizeof(LoadOptions), _VERIFY_FULL, 0, *device)
        self._check(self._lib.aotpack_model_load(str(path).encode(), ctypes.byref(options), ctypes.byref(self._model)))
        self._check(self._lib.aotpack_context_create(self._model, None, ctypes.byref(self._context)))

    def close(self) -> None:
        self._lib.aotpack_context_release(self._context)
        self._lib.aotpack_model_release(self._model)

    def run(self, entry: str, inputs: Sequence[Array]) -> list[Array]:
        """Runs an entry; the results are copies."""
        index = ctypes.c_size_t()
        self._check(self._lib.aotpack_model_find_entry(self._model, entry.encode(), ctypes.byref(index)))
        assert self._lib.aotpack_model_input_count(self._model, index) == len(inputs)
        count = self._lib.aotpack_model_output_count(self._model, index)
        results = (ctypes.POINTER(DLManagedTensorVersioned) * max(count, 1))()
        given = _Tensors(inputs)
        status = self._lib.aotpack_context_run(
            self._context, index, given.pointers, ctypes.c_size_t(len(inputs)), results, ctypes.c_size_t(count)
        )
        self._check(status)
        return [_taken(result) for result in results[:count]]

    def inputs(self) -> list[ValueInfo]:
        """What the library tells about the inputs of the first entry."""
        return [
            self._lib.aotpack_model_input(self._model, ctypes.c_size_t(0), ctypes.c_size_t(i)).contents
            for i in range(self._lib.aotpack_model_input_count(self._model, ctypes.c_size_t(0)))
        ]

    def set_stream(self, stream: int | None) -> None:
        self._check(self._lib.aotpack_context_set_stream(self._context, ctypes.c_void_p(stream)))

    def synchronize(self) -> None:
        self._check(self._lib.aotpack_context_synchronize(self._context))

    def state(self) -> list[Array]:
        """The state tensors, in the library's order."""
        states = []
        for index in range(self._lib.aotpack_model_state_count(self._model)):
            result = ctypes.POINTER(DLManagedTensorVersioned)()
            self._check(
                self._lib.aotpack_context_get_state(self._context, ctypes.c_size_t(index), ctypes.byref(result))
            )
            states.append(_taken(result))
        return states

    def reset_state(self) -> None:
        self._check(self._lib.aotpack_context_reset(self._context))

    def update_weights(self, weights: Mapping[str, Array], *, partial: bool) -> None:
        names = (ctypes.c_char_p * max(len(weights), 1))(*(name.encode() for name in weights))
        given = _Tensors(list(weights.values()))
        flags = _UPDATE_PARTIAL if partial else 0
        options = UpdateOptions(ctypes.sizeof(UpdateOptions), 1, 0, flags, None, 0)
        self._check(
            self._lib.aotpack_model_update_weights(
                self._model, names, given.pointers, ctypes.c_size_t(len(weights)), ctypes.byref(options)
            )
        )

    def reset_weights(self) -> None:
        self._check(self._lib.aotpack_model_reset_weights(self._model))

    def _check(self, status: int | None) -> None:
        if status is None:
            return
        handle = ctypes.c_void_p(status)
        name = self._lib.aotpack_code_name(self._lib.aotpack_status_code(handle)).decode()
        message = self._lib.aotpack_status_message(handle).decode()
        self._lib.aotpack_status_release(handle)
        raise CError(name, message)


class _Tensors:
    """Arrays as DLTensors, which borrow them; `pointers` goes to the library."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._arrays = arrays
        self._tensors = [_described(array) for array in arrays]
        self.pointers = (ctypes.POINTER(DLTensor) * max(len(arrays), 1))(*map(ctypes.pointer, self._tensors))


def _described(array: Array) -> DLTensor:
    code, bits = _OTHERS.get(array.dtype.name) or (_KINDS[array.dtype.kind], 8 * array.itemsize)
    integers = ctypes.c_int64 * max(array.ndim, 1)
    return DLTensor(
        array.ctypes.data,
        _CPU,
        0,
        array.ndim,
        DLDataType(code, bits, 1),
        integers(*array.shape),
        integers(*(stride // array.itemsize for stride in array.strides)),
        0,
    )


def _taken(result: Any) -> Array:
    """A copy of a result, which is released."""
    tensor = result.contents.dl_tensor
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim]
    dtype = _numpy_dtype(tensor.dtype.code, tensor.dtype.bits)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0
    raw = ctypes.string_at(tensor.data + tensor.byte_offset, extent * dtype.itemsize) if extent else b""
    steps = [stride * dtype.itemsize for stride in strides]
    array = np.ndarray(shape, dtype, raw, 0, steps).copy() if extent else np.empty(shape, dtype)
    result.contents.deleter(result)
    return array


def _numpy_dtype(code: int, bits: int) -> np.dtype[Any]:
    for name, described in _OTHERS.items():
        if described == (code, bits):
            return np.dtype(getattr(ml_dtypes, name))
    kind = next(kind for kind, number in _KINDS.items() if number == code)
    return np.dtype(np.bool_) if kind == "b" else np.dtype(f"{kind}{bits // 8}")


@cache
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(Path(aotpack.cmake_dir()).parents[1] / "libaotpack.so"))
    for name in ("aotpack_status_message", "aotpack_code_name"):
        getattr(lib, name).restype = ctypes.c_char_p
    for name in ("input_count", "output_count", "state_count"):
        getattr(lib, f"aotpack_model_{name}").restype = ctypes.c_size_t
    for name in ("model_load", "model_find_entry", "model_update_weights", "model_reset_weights"):
        getattr(lib, f"aotpack_{name}").restype = ctypes.c_void_p
    lib.aotpack_model_input.restype = ctypes.POINTER(ValueInfo)
    for name in ("create", "run", "get_state", "reset", "set_stream", "synchronize"):
        getattr(lib, f"aotpack_context_{name}").restype = ctypes.c_void_p
    return lib
