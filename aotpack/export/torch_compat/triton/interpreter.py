"""Runs Triton kernels on tensors of the CPU, by Triton's interpreter.

The interpreter computes with numpy, a block after another. It has no bfloat16: sums and products of such values are
computed here in single precision and rounded, as GPUs do. Accesses are checked, because a kernel that reads beyond its
tensors would end the process.

Private interfaces touched (triton 3.6 and 3.7):
  triton.runtime.interpreter.{InterpretedFunction, InterpreterError, TensorHandle, InterpreterBuilder, ReduceOps,
    ScanOps, _interpreter, _patch_lang}
  triton.runtime.jit.JITFunction.__call__
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from aotpack.errors import CaptureError

Array = npt.NDArray[Any]


def interpret(kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
    """Runs a kernel with `triton.jit`; it writes to its tensors.

    Args:
        kernel: the function.
        grid: the number of blocks in three dims.
        arguments: of all of its parameters; tensors are on the CPU.

    Raises:
        CaptureError: it cannot be interpreted, or accesses memory beyond its tensors.
    """
    from triton.runtime.interpreter import InterpretedFunction

    function = InterpretedFunction(kernel.fn)
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    try:
        with _interpreting(_Bounds(tensors)), np.errstate(all="ignore"):
            function.run(grid=grid, warmup=False, **arguments)
    except Exception as error:
        raise CaptureError(
            f"the Triton kernel {kernel.fn.__name__} cannot be run on the CPU, for the example call: "
            f"{_innermost(error)}",
            hint="make it part of an operator with an implementation for the CPU: torch.library.triton_op with "
            'register_kernel("cpu") (docs/custom_ops.md)',
        ) from error


def _innermost(error: BaseException) -> str:
    """The cause that the interpreter wraps, once for each function."""
    while error.__cause__ is not None and type(error).__name__ == "InterpreterError":
        error = error.__cause__
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")


class _Bounds:
    """Where memory may be accessed."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        storages = sorted((t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in tensors)
        self._begins = np.array([begin for begin, _ in storages], np.uint64)
        self._ends = np.array([begin + size for begin, size in storages], np.uint64)

    def check(self, addresses: Array, mask: Array, size: int) -> None:
        """Raises IndexError for an address outside."""
        used = addresses[np.broadcast_to(mask, addresses.shape).astype(bool)].astype(np.uint64)
        if used.size == 0:
            return
        block = np.searchsorted(self._begins, used, side="right") - 1
        inside = (block >= 0) & (used + np.uint64(size) <= self._ends[np.maximum(block, 0)])
        if not inside.all():
            raise IndexError(f"{int((~inside).sum())} elements are read or written beyond the tensors of the kernel")


class _Memory:
    """The interpreter's access to memory, checked."""

    def __init__(self, memory: Any, bounds: _Bounds) -> None:
        self._memory = memory
        self._bounds = bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, addresses: Array, mask: Array, other: Array, dtype: Any) -> Any:
        self._bounds.check(addresses, mask, np.dtype(dtype).itemsize)
        return self._memory.load(addresses, mask, other, dtype)

    def store(self, addresses: Array, values: Array, mask: Array) -> None:
        self._bounds.check(addresses, mask, values.itemsize)
        self._memory.store(addresses, values, mask)

    def atomic_rmw(self, operation: Any, addresses: Array, values: Array, mask: Array, order: Any) -> Any:
        self._bounds.check(addresses, mask, values.itemsize)
        return self._memory.atomic_rmw(operation, addresses, values, mask, order)

    def atomic_cas(self, addresses: Array, expected: Array, values: Array, order: Any) -> Any:
        self._bounds.check(addresses, np.ones(1, bool), values.itemsize)
        return self._memory.atomic_cas(addresses, expected, values, order)


@contextlib.contextmanager
def _interpreting(bounds: _Bounds) -> Iterator[None]:
    """While active, functions of `triton.language` compute with numpy, and kernels can call each other."""
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    # What the interpreter else patches for each function that is called, by the modules that it names.
    named = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
    scope = interpreter._patch_lang(named)
    # Scalars are arrays of one element. Triton 3.6 converts them in a way that numpy rejects from 2.4 on.
    scope.set_attr(tl.core.tensor, "__index__", lambda self: int(self.handle.data.item()))
    builder = interpreter.InterpreterBuilder
    unchanged = types.SimpleNamespace(restore=lambda: None)
    try:
        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (interpreter, "_patch_lang", lambda _: unchanged),
                (interpreter, "_interpreter", _Memory(interpreter._interpreter, bounds)),
                (JITFunction, "__call__", lambda self, *a, **k: interpreter.InterpretedFunction(self.fn)(*a, **k)),
                (builder, "cast_impl", _cast),
                (builder, "create_fp_to_fp", _cast_rounded(builder.create_fp_to_fp)),
                (builder, "create_dot", _dot),
                (builder, "binary_op", _in_single(builder.binary_op)),
                (builder, "unary_op", _in_single(builder.unary_op)),
                (builder, "ternary_op", _in_single(builder.ternary_op)),
                (interpreter.ReduceOps, "apply_impl", _reduced_in_single(interpreter.ReduceOps.apply_impl)),
                (interpreter.ScanOps, "apply_impl", _reduced_in_single(interpreter.ScanOps.apply_impl)),
            ):
                stack.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, value)
            yield
    finally:
        scope.restore()


# ---- bfloat16, which the interpreter keeps as bits ------------------------------------------------------------------


def _is_bits(x: Any) -> bool:
    return str(x.dtype.scalar) == "bf16"


def _wide(x: Any) -> Array:
    """The numbers of a handle, in a dtype that numpy computes with."""
    array: Array = x.data
    if not _is_bits(x):
        return array
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _bits(values: Array) -> Array:
    rounded = torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(torch.bfloat16)
    bits: Array = rounded.view(torch.int16).numpy().view(np.uint16)
    return bits.reshape(values.shape)


def _cast(self: Any, x: Any, dtype: Any) -> Any:
    from triton.runtime import interpreter

    kind, value = dtype.scalar, _wide(x)
    if str(kind) == "bf16":
        return interpreter.TensorHandle(_bits(value), kind)
    return interpreter.TensorHandle(value.astype(interpreter._get_np_dtype(kind)), kind)


def _cast_rounded(original: Any) -> Any:
    def cast(self: Any, x: Any, dtype: Any, rounding: Any) -> Any:
        plain = {"fp64", "fp32", "fp16", "bf16"}
        if {str(x.dtype.scalar), str(dtype.scalar)} <= plain:
            return _cast(self, x, dtype)
        return original(self, x, dtype, rounding)

    return cast


def _dot(self: Any, a: Any, b: Any, added: Any, precision: Any, imprecise: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    a, b = (_eighth_as_half(x) for x in (a, b))
    product = np.matmul(_wide(a), _wide(b), dtype=added.data.dtype)
    return TensorHandle(product + added.data, added.dtype.scalar)


def _eighth_as_half(x: Any) -> Any:
    from triton.language import float16
    from triton.runtime import interpreter

    if not (x.dtype.scalar.primitive_bitwidth == 8 and x.dtype.scalar.is_floating()):
        return x
    data = interpreter._convert_float(x.data, x.dtype.scalar, float16, None).view(np.float16)
    return interpreter.TensorHandle(data, float16)


def _in_single(operator: Any) -> Any:
    def call(self: Any, *args: Any) -> Any:
        from triton.language import float32
        from triton.runtime.interpreter import TensorHandle

        *handles, function = args
        kind = handles[-1].dtype.scalar
        if str(kind) != "bf16" or function in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            return operator(self, *args)
        wide = [TensorHandle(_wide(h), float32) if _is_bits(h) else h for h in handles]
        result = operator(self, *wide, function)
        return result if result.data.dtype == bool else TensorHandle(_bits(result.data), kind)

    return call


def _reduced_in_single(apply: Any) -> Any:
    def call(self: Any, inputs: Any) -> Any:
        import triton.language as tl

        tensors = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        if not any(_is_bits(x.handle) for x in tensors):
            return apply(self, inputs)
        wide = tuple(x.to(tl.float32) if _is_bits(x.handle) else x for x in tensors)
        results = apply(self, wide if isinstance(inputs, (tuple, list)) else wide[0])
        many = results if isinstance(results, (tuple, list)) else (results,)
        narrow = tuple(r.to(x.dtype) for r, x in zip(many, tensors, strict=True))
        return narrow if isinstance(results, (tuple, list)) else narrow[0]

    return call
