"""Triton's interpreter, mended where it computes otherwise than a GPU, and made faster.

Private interfaces touched (triton 3.6 and 3.7):
  triton.runtime.interpreter.{_interpreter, _patch_lang, InterpreterBuilder, InterpreterOptions, interpreter_builder,
    ReduceOps, ScanOps, _get_np_dtype}
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from tests.support.interpreted_gpu import device_math

Array = npt.NDArray[Any]

# Dtypes that the interpreter keeps as bits.
_BITS = {tl.bfloat16: ml_dtypes.bfloat16, tl.float8e4nv: ml_dtypes.float8_e4m3fn, tl.float8e5: ml_dtypes.float8_e5m2}


def install(check_access: Callable[[Array, int], None]) -> None:
    """Changes the interpreter of this process, which can compile no kernels from then on.

    Args:
        check_access: is called with the addresses that a kernel reads or writes, and the bytes at each.
    """
    device_math.install()
    # What is patched for each call of each function else.
    everything = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
    interpreter._patch_lang(everything)
    interpreter._patch_lang = lambda fn: types.SimpleNamespace(restore=lambda: None)
    interpreter._interpreter = _CheckedMemory(interpreter._interpreter, check_access)
    # As TorchInductor has kernels compiled: with assertions.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    # It makes a table for each answer.
    interpreter._get_np_dtype = _numpy_dtypes(interpreter._get_np_dtype)
    builder = interpreter.InterpreterBuilder
    builder.cast_impl = _cast
    builder.create_fp_to_fp = lambda self, x, dtype, rounding: _cast(self, x, dtype)
    builder.create_dot = _dot
    builder.create_inline_asm = _inline_asm
    builder.binary_op = _on_values(builder.binary_op)
    builder.unary_op = _on_values(builder.unary_op)
    builder.ternary_op = _on_values(builder.ternary_op)
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan


def _numpy_dtypes(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    find, address = functools.cache(find), np.dtype(np.uint64)
    return lambda kind: address if kind.scalar.is_ptr() else find(kind.scalar)


class _CheckedMemory:
    """The interpreter's access to memory."""

    def __init__(self, memory: Any, check: Callable[[Array, int], None]) -> None:
        self._memory = memory
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, addresses: Array, mask: Array, other: Array, dtype: Any) -> Array:
        self._check(addresses[_spread(mask, addresses)], np.dtype(dtype).itemsize)
        result: Array = self._memory.load(addresses, mask, other, dtype)
        return result

    def store(self, addresses: Array, values: Array, mask: Array) -> None:
        self._check(addresses[_spread(mask, addresses)], values.itemsize)
        self._memory.store(addresses, values, mask)

    def atomic_rmw(self, operation: Any, addresses: Array, values: Array, mask: Array, order: Any) -> Array:
        # Of a mask that is broadcast from one element, it would read one element.
        mask = np.ascontiguousarray(_spread(mask, addresses))
        self._check(addresses[mask], values.itemsize)
        result: Array = self._memory.atomic_rmw(operation, addresses, values, mask, order)
        return result

    def atomic_cas(self, addresses: Array, expected: Array, values: Array, order: Any) -> Array:
        self._check(addresses, values.itemsize)
        result: Array = self._memory.atomic_cas(addresses, expected, values, order)
        return result


def _spread(mask: Array, addresses: Array) -> Array:
    return np.broadcast_to(mask, addresses.shape).astype(bool)


def _value(x: TensorHandle) -> Array:
    """The numbers of a tensor, in a dtype that numpy computes with."""
    bits = _BITS.get(x.dtype.scalar)
    return x.data if bits is None else x.data.view(bits).astype(np.float32)


def _cast(self: Any, x: TensorHandle, dtype: Any) -> TensorHandle:
    kind, value = dtype.scalar, _value(x)
    bits = _BITS.get(kind)
    if bits is not None:
        return TensorHandle(np.ascontiguousarray(value.astype(bits)).view(interpreter._get_np_dtype(kind)), kind)
    return TensorHandle(value.astype(interpreter._get_np_dtype(kind)), kind)


def _dot(self: Any, a: TensorHandle, b: TensorHandle, sum_: TensorHandle, precision: Any, _: Any) -> TensorHandle:
    # numpy has no fast products of integers; doubles hold the sums of those of bytes.
    kind = np.dtype(np.float64) if sum_.data.dtype.kind == "i" else sum_.data.dtype
    product = np.matmul(_value(a).astype(kind), _value(b).astype(kind)).astype(sum_.data.dtype)
    return TensorHandle(product + sum_.data, sum_.dtype.scalar)


# By opcode, on float64: the product of two of float32 is exact.
_INSTRUCTIONS: dict[str, Callable[..., Array]] = {
    "fma.rn.f32": lambda a, b, c: a * b + c,
    "rcp.approx.ftz.f32": lambda a: 1 / a,
}


def _inline_asm(_: Any, asm: str, constraints: str, values: Sequence[TensorHandle], *rest: Any) -> Any:
    """One instruction of those that TorchInductor writes, for operands of float32."""
    opcode = asm.split()[0]
    if opcode not in _INSTRUCTIONS or set(constraints) > set("=f, "):
        raise NotImplementedError(f"inline assembly in Triton's interpreter: {asm}")
    with np.errstate(all="ignore"):
        result = _INSTRUCTIONS[opcode](*(value.data.astype(np.float64) for value in values)).astype(np.float32)
    return types.SimpleNamespace(get_result=lambda _: TensorHandle(result, tl.float32))


def _on_values(operator: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """An operator of the builder that takes the bits of bfloat16 for integers, without that error."""

    def call(self: Any, *args: Any) -> TensorHandle:
        *handles, function = args
        kind = handles[-1].dtype.scalar
        if kind not in _BITS or function in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            return operator(self, *args)
        wide = [h if h.dtype.scalar not in _BITS else TensorHandle(_value(h), tl.float32) for h in handles]
        result = operator(self, *wide, function)
        return result if result.data.dtype == bool else _cast(self, result, kind)

    return call


def _tensors(arrays: Sequence[Array], like: Sequence[Any]) -> list[Any]:
    kinds = [tensor.dtype.scalar for tensor in like]
    return [
        tl.tensor(TensorHandle(array, kind), tl.block_type(kind, list(array.shape)) if array.ndim else kind)
        for array, kind in zip(arrays, kinds, strict=True)
    ]


def _combined(function: Any, *args: Any) -> list[Array]:
    result = function(*args)
    return [item.handle.data for item in (result if isinstance(result, tuple) else (result,))]


def _reduce(self: Any, inputs: Any) -> list[Any]:
    """Neighbours are combined until one is left."""
    whole = self.axis is None
    axis = 0 if whole else self.axis
    arrays = [x.handle.data.reshape(-1) if whole else x.handle.data for x in inputs]
    dtypes = [array.dtype for array in arrays]
    arrays = [np.moveaxis(array, axis, 0) for array in arrays]
    while len(arrays[0]) > 1:
        first, second = [array[0::2] for array in arrays], [array[1::2] for array in arrays]
        arrays = _combined(self.combine_fn, *_tensors(first, inputs), *_tensors(second, inputs))
    results = [array[0] for array in arrays]
    if self.keep_dims:
        rank = inputs[0].handle.data.ndim
        results = [np.expand_dims(x, tuple(range(rank)) if whole else axis) for x in results]
    return [self.to_tensor(np.asarray(x, d), i.dtype) for x, d, i in zip(results, dtypes, inputs, strict=True)]


def _scan(self: Any, inputs: Any) -> list[Any]:
    """All prefixes of twice the length at a time."""
    arrays = [np.moveaxis(x.handle.data, self.axis, 0) for x in inputs]
    count = len(arrays[0])
    for step in itertools.takewhile(lambda n: n < count, (1 << i for i in itertools.count())):
        shifted = [np.roll(array, step, axis=0) for array in arrays]
        joined = _combined(self.combine_fn, *_tensors(shifted, inputs), *_tensors(arrays, inputs))
        arrays = [np.concatenate([a[:step], j[step:].astype(a.dtype)]) for a, j in zip(arrays, joined, strict=True)]
    return [self.to_tensor(np.moveaxis(a, 0, self.axis), x.dtype) for a, x in zip(arrays, inputs, strict=True)]
