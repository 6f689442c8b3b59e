"""Inputs for an entry from an .npz file, from a golden or generated, and summaries of outputs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotpack.archive import ArchiveReader, Entry, Golden, GoldenTensor
from aotpack.cli.sizes import number_of, resolve_dims, size_of
from aotpack.errors import ArchiveNotFoundError, InputError
from aotpack.spec import DType, Signature, TensorSpec

Array = npt.NDArray[Any]


def load_npz(path: Path, signature: Signature) -> list[Array]:
    """The inputs of an entry, read by name from an .npz file.

    Raises:
        InputError: the file is not an .npz file, an input is missing, or the file contains an unknown input.
    """
    found = load_arrays(path, [value.name for value in signature.inputs])
    return [_loaded(value, array) for value, array in zip(signature.inputs, found, strict=True)]


def load_arrays(path: Path, names: Sequence[str]) -> list[Array]:
    """The arrays of an .npz file that has these and no others; raises what `load_npz` raises."""
    try:
        file = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ArchiveNotFoundError(f"no such file: {path}") from None
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is not an .npz file: {error}", hint="create it with numpy.savez") from None
    if not isinstance(file, Mapping):
        raise InputError(
            f"{path} contains a single array", hint="create it with numpy.savez, with the inputs' names as keys"
        )
    hint = f"the inputs are {', '.join(names)}; the file contains {', '.join(file) or 'nothing'}"
    for name in names:
        if name not in file:
            raise InputError(f"{path} does not contain the input {name!r}", hint=hint)
    for name in file:
        if name not in names:
            raise InputError(f"{path} contains {name!r}, which is not an input", hint=hint)
    return [np.asarray(file[name]) for name in names]


def _loaded(value: TensorSpec, array: Array) -> Array:
    # `numpy.savez(scale=2)` writes an int; a call accepts it as a float.
    if value.number == "float" and array.ndim == 0 and array.dtype.kind == "i":
        return array.astype(np.float64)
    return array


def stored(dtype: DType, array: Array) -> Array:
    """An array as stored in `.npz` files: dtypes that numpy lacks become unsigned integers with the same bits."""
    if dtype.is_float8 or dtype is DType.BFLOAT16:
        return np.ascontiguousarray(array).view(dtype.numpy_name).reshape(array.shape)
    return array


def random_inputs(entry: Entry, sizes: Mapping[str, int], *, seed: int = 0) -> list[Array]:
    """Made-up inputs: floats from a normal distribution, integers 0 or 1, so that they are valid indices. A number that
    gives a dim is the size of that dim.

    Args:
        entry: what they are for.
        sizes: of dims by name; the others get the least that a variant takes, but 1 at least.
        seed: of the random numbers.

    Raises:
        InputError: a dim is unknown.
    """
    values = resolve_dims(entry, sizes)
    generator = np.random.default_rng(seed)
    return [_array(value, values, generator) for value in entry.inputs]


def _array(value: TensorSpec, values: Mapping[str, int], generator: np.random.Generator) -> Array:
    if value.dim is not None:
        return np.array(values[value.dim], np.int64)
    if value.formula is not None:
        return np.array(number_of(value.formula, values), np.int64)
    return _random(value, [size_of(size, values) for size in value.shape], generator)


def _random(value: TensorSpec, shape: list[int], generator: np.random.Generator) -> Array:
    if value.dtype.is_float8:
        # 1, -1, 1/2 and so on, in the upper half of the exponents: bits that mean a number in each of the dtypes.
        return np.asarray(generator.integers(0x20, 0x40, shape) | generator.choice([0, 0x80], shape)).astype(np.uint8)
    if value.dtype is DType.BFLOAT16:
        return to_bfloat16(generator.standard_normal(shape, dtype=np.float32))
    dtype = np.dtype(value.dtype.numpy_name)
    if value.dtype.is_complex:
        return np.asarray(generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    if value.dtype.is_floating:
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2, shape)).astype(dtype)


def to_bfloat16(array: Array) -> Array:
    """float32 → the bits of bfloat16 (uint16), rounded to nearest, ties to even. Finite values only."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return np.asarray(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)).reshape(array.shape)


def as_numbers(array: Array, dtype: DType) -> Array:
    """The array as float64 or complex128, to calculate with."""
    if dtype is DType.BFLOAT16:
        array = (np.atleast_1d(stored(dtype, array)).astype(np.uint32) << 16).view(np.float32)
    if dtype.is_float8:
        array = np.atleast_1d(_float8_values(dtype)[stored(dtype, array)])
    return array.astype(np.complex128 if dtype.is_complex else np.float64)


@lru_cache(maxsize=4)
def _float8_values(dtype: DType) -> Array:
    """The values of all 256 elements of a dtype of float8, by their bits."""
    bits = np.arange(256)
    exponents, bias = {
        DType.FLOAT8_E4M3FN: (4, 7),
        DType.FLOAT8_E4M3FNUZ: (4, 8),
        DType.FLOAT8_E5M2: (5, 15),
        DType.FLOAT8_E5M2FNUZ: (5, 16),
    }[dtype]
    width = 7 - exponents
    exponent, mantissa = (bits & 0x7F) >> width, (bits & ((1 << width) - 1)).astype(np.float64)
    normal = exponent > 0
    values = np.ldexp(mantissa + normal * (1 << width), np.where(normal, exponent, 1) - bias - width)
    if dtype is DType.FLOAT8_E4M3FN:
        values[(bits & 0x7F) == 0x7F] = np.nan
    elif dtype is DType.FLOAT8_E5M2:
        values[exponent == 31] = np.where(mantissa[exponent == 31] == 0, np.inf, np.nan)
    values[bits >= 0x80] *= -1
    if dtype in (DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2FNUZ):
        values[0x80] = np.nan
    return np.asarray(values)


def golden_inputs(reader: ArchiveReader, golden: Golden) -> list[Array]:
    """The inputs of a golden, writable."""

    def read(tensor: GoldenTensor) -> bytes:
        return reader.read(tensor.file, tensor.offset, tensor.nbytes)

    return inputs_of(golden, read)


def inputs_of(golden: Golden, read: Callable[[GoldenTensor], bytes]) -> list[Array]:
    """The inputs of a golden, of which those that are one tensor are one array."""
    inputs = [golden_array(tensor, read).reshape(tensor.shape) for tensor in golden.inputs]
    for first, *others in golden.same:
        for index in others:
            inputs[index] = inputs[first]
    return inputs


def golden_array(tensor: GoldenTensor, read: Callable[[GoldenTensor], bytes]) -> Array:
    """The elements of a golden tensor that are kept, flat and writable. `read` returns its bytes."""
    return np.frombuffer(bytearray(read(tensor)), dtype=tensor.dtype.numpy_name)


def summary(spec: TensorSpec, array: Array) -> dict[str, Any]:
    """Name, dtype, shape, and least, greatest and mean element (None where these mean nothing)."""
    result: dict[str, Any] = {"name": spec.name, "dtype": str(spec.dtype), "shape": list(array.shape)}
    if spec.dtype.is_complex or array.size == 0:
        return result | {"min": None, "max": None, "mean": None}
    numbers = as_numbers(array, spec.dtype)
    return result | {"min": float(numbers.min()), "max": float(numbers.max()), "mean": float(numbers.mean())}
