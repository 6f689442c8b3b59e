"""Arguments from bytes, without an array library."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack import Tensor
from aotpack.errors import InputError

Archive = Callable[[str], Path]


class Bytes(bytearray):
    """Bytes that tell when they are gone."""


def test_calls(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    tensor = Tensor.from_buffer(x.tobytes(), "float32", (2, 4))
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.nbytes) == ((2, 4), "float32", "cpu", 32)
    assert tensor.tolist() == x.tolist()
    assert model(tensor).tolist() == model(x).tolist()
    with pytest.raises(InputError, match=r"expected float32, got float16"):
        model(Tensor.from_buffer(bytes(16), "float16", [2, 4]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "bool", "uint64", "complex64"])
def test_dtypes(dtype: str) -> None:
    item = {"float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "bool": 1, "uint64": 8, "complex64": 8}[dtype]
    data = bytes([0, 1] * (3 * item))
    tensor = Tensor.from_buffer(data, dtype, (3, 2, 1))
    assert tensor.dtype == dtype
    assert tensor.numpy().tobytes() == data
    for shape in ((), (6,)):
        size = item * (6 if shape else 1)
        assert Tensor.from_buffer(data[:size], dtype, shape).shape == shape
    assert Tensor.from_buffer(b"", dtype, (0, 5)).tolist() == []


def test_memory_is_shared_and_kept() -> None:
    source = Bytes(16)
    alive = weakref.ref(source)
    tensor = Tensor.from_buffer(source, "float32", (2, 2))
    source[0:4] = np.float32(3).tobytes()
    assert tensor.tolist() == [[3, 0], [0, 0]]
    array = np.from_dlpack(tensor)
    array[1, 1] = 5
    assert memoryview(source).cast("f")[3] == 5
    with pytest.raises(BufferError):
        source.append(0)  # exported
    del source, tensor
    gc.collect()
    assert alive() is not None
    # The last user may let go on any thread.
    thread = threading.Thread(target=lambda owner: owner.clear(), args=([array],))
    del array
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert alive() is None


def test_misaligned_memory_is_copied() -> None:
    source = bytearray(17)
    tensor = Tensor.from_buffer(memoryview(source)[1:], "float32", (4,))
    source[1:5] = np.float32(3).tobytes()
    assert tensor.tolist() == [0, 0, 0, 0]
    source.append(0)  # free
    assert tensor.numpy().flags.aligned


def test_read_only_memory(archive: Archive) -> None:
    tensor = Tensor.from_buffer(bytes(12), "float32", (3,))
    assert memoryview(tensor).readonly
    for array in (tensor.numpy(), np.from_dlpack(tensor)):
        assert not array.flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    assert np.array(tensor, copy=True).flags.writeable
    model, x = aotpack.load(archive("affine")), np.zeros((2, 4), np.float32)
    with pytest.raises(InputError, match="out 'output' is written to by this call, but the array is read-only"):
        model.run([x], out=[Tensor.from_buffer(bytes(32), "float32", (2, 4))])
    out = Tensor.from_buffer(bytearray(32), "float32", (2, 4))
    model.run([x], out=[out])
    assert out.tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((bytes(15), "float32", (2, 2)), ValueError, r"float32 of shape (2, 2) has 16 bytes, the buffer has 15"),
        ((bytes(4), "float32", (2,)), ValueError, r"float32 of shape (2,) has 8 bytes, the buffer has 4"),
        ((bytes(4), "float31", (2,)), ValueError, "unknown dtype 'float31'"),
        ((bytes(4), "int8", (-4,)), ValueError, "sizes are not negative, got -4"),
        ((bytes(4), "int8", (2**62, 4, 2)), ValueError, "has more bytes than any memory"),
        ((bytes(1), "int8", (1,) * 65), ValueError, "at most 64 sizes are supported, got 65"),
        ((bytes(4), "int8", (2**64,)), OverflowError, ""),
        ((bytes(4), "int8", ("4",)), TypeError, ""),
        ((bytes(4), "int8", 4), TypeError, ""),
        (([0], "int8", (1,)), TypeError, ""),
        ((memoryview(bytes(8))[::2], "int8", (4,)), BufferError, ""),
    ],
)
def test_errors(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as info:
        Tensor.from_buffer(*arguments)
    assert message in str(info.value)


def test_numpy_is_not_imported() -> None:
    code = """
import sys
from aotpack import Tensor
tensor = Tensor.from_buffer(bytes(4), "float16", [2])
assert tensor.tolist() == [0, 0] and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
