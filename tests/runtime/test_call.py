"""Calls in the forms that users write, with arrays of every kind."""

from __future__ import annotations

import array
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.errors import EntryNotFoundError, ExecutionError, InputError, OutOfMemoryError
from tests.support.structures import Batch, Result

Archive = Callable[[str], Path]
W = np.array([1, 2, 3, 4], np.float32)


def affine_input(rows: int = 2) -> np.ndarray[Any, Any]:
    return np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)


# ---- forms of calls -------------------------------------------------------------------------------------------------


def test_numpy_in_numpy_out(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = affine_input()
    for result in (model(x), model(x=x)):
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, x * W + 1)
    assert model.name == "affine"
    assert model.target == "x86-64-v3"
    assert str(model.signature) == "forward(x: float32[batch, 4]) -> float32[batch, 4] where batch in [1, 64]"


def test_results_own_their_memory(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    results = [model(affine_input() + i) for i in range(20)]
    del model
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, (affine_input() + i) * W + 1)
        result += 1  # writable


@pytest.mark.parametrize("name", ["tuple", "list", "dict"])
def test_flat_results(archive: Archive, name: str) -> None:
    model = aotpack.load(archive(name))
    x, scale = np.arange(3, dtype=np.float32), np.float32(10)
    result = model(x, scale=scale)
    assert type(result).__name__ == name
    plus, minus = result.values() if isinstance(result, dict) else result
    np.testing.assert_array_equal(plus, x + 10)
    np.testing.assert_array_equal(minus, x - 10)
    if name == "dict":
        assert list(result) == ["plus", "minus"]


def test_nested_arguments_and_results(archive: Archive) -> None:
    model = aotpack.load(archive("nested"))
    x, scale = np.arange(3, dtype=np.float32), np.array(10, np.float32)
    for args, kwargs in (((Batch(x, [scale, 3]),), {}), ((), {"batch": Batch(x, (scale, 3))})):
        result = model(*args, **kwargs, mode="fast", flag=None)
        assert list(result) == ["pair", "constant"]
        assert result["constant"] == 7
        np.testing.assert_array_equal(result["pair"][0], x - 10)
        np.testing.assert_array_equal(result["pair"][1], x + 10)


def test_dataclass_result_is_of_its_class_when_that_is_imported(archive: Archive) -> None:
    x = np.arange(3, dtype=np.float32)
    result = aotpack.load(archive("dataclass_out"))(x, np.float32(1))
    assert isinstance(result, Result)
    assert result.extra == 0
    np.testing.assert_array_equal(result.plus, x + 1)


def test_run_by_order_and_by_name(archive: Archive) -> None:
    model = aotpack.load(archive("nested"))
    x, scale = np.arange(3, dtype=np.float32), np.array(10, np.float32)
    for inputs in ([x, scale], (x, scale), {"scale": scale, "x": x}):
        plus, minus = model.run(inputs)
        np.testing.assert_array_equal(plus, x + 10)
        np.testing.assert_array_equal(minus, x - 10)


def test_run_into_given_buffers(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = affine_input(3)
    out = np.empty((3, 4), np.float32)
    assert model.run([x], out=[out])[0] is out
    np.testing.assert_array_equal(out, x * W + 1)
    strided = np.zeros((3, 8), np.float32)
    model.run({"x": x}, out={"output": strided[:, ::2]})
    np.testing.assert_array_equal(strided[:, ::2], x * W + 1)
    assert not strided[:, 1::2].any()


def test_entries(archive: Archive) -> None:
    model = aotpack.load(archive("counter"))
    assert model.entry_names == ["step", "again"]
    assert model.entry_name == "step"
    assert model.entry("again").entry_name == "again"
    with pytest.raises(EntryNotFoundError, match="missing"):
        model.entry("missing")
    with pytest.raises(LookupError):
        model.entry("missing")


def test_contexts_have_their_own_state(archive: Archive) -> None:
    model = aotpack.load(archive("counter"))
    first, second = model.context(), model.context()
    assert [first().tolist(), first().tolist(), second().tolist()] == [[1.0], [2.0], [1.0]]
    assert first.entry("again")().tolist() == [3.0]
    assert aotpack.load(archive("counter"))().tolist() == [1.0]


def test_threads_setting(archive: Archive) -> None:
    path = archive("in_place")
    x = np.ones((2, 3), np.float32)
    assert int(aotpack.load(path, num_threads=3)(x)) == 3
    model = aotpack.load(path)
    context = model.context(num_threads=2)
    assert context.num_threads == 2
    assert int(context(x)) == 2
    assert model.num_threads >= 1
    with pytest.raises(ValueError, match="num_threads"):
        aotpack.load(path, num_threads=-1)


def test_seed_repeats(archive: Archive) -> None:
    model = aotpack.load(archive("random"))
    first = model.context(seed=1)
    values = [first().tolist(), first().tolist()]
    assert values[0] != values[1]
    second = model.context(seed=1)
    assert [second().tolist(), second().tolist()] == values
    second.seed(1)
    assert second().tolist() == values[0]
    assert model.context(seed=2)().tolist() != values[0]


def test_in_place(archive: Archive) -> None:
    model = aotpack.load(archive("in_place"))
    x = np.ones((2, 3), np.float32)
    model(x)
    assert (x == 2).all()
    strided = np.ones((2, 6), np.float32)
    model(strided[:, ::2])
    assert (strided[:, ::2] == 2).all()
    assert (strided[:, 1::2] == 1).all()
    x.flags.writeable = False
    with pytest.raises(InputError, match="'x' is written to"):
        model(x)
    with pytest.raises(InputError, match="'x' is written to"):
        model(memoryview(bytes(24)).cast("f", [2, 3]))


# ---- kinds of arrays ------------------------------------------------------------------------------------------------


def test_buffers_in_tensors_out(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    data = array.array("f", range(8))
    result = model(memoryview(data).cast("B").cast("f", [2, 4]))
    assert type(result) is aotpack.Tensor
    assert result.tolist() == (affine_input() * W + 1).tolist()
    again = model(result)
    assert type(again) is aotpack.Tensor
    np.testing.assert_array_equal(np.asarray(again), (affine_input() * W + 1) * W + 1)


NUMPY = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "reversed", "broadcast", "empty", "offset"])
def test_every_dtype_and_layout(archive: Archive, dtype: str, layout: str) -> None:
    model = aotpack.load(archive(dtype))
    base = (np.arange(24).reshape(4, 6) % 7 - (0 if dtype in ("uint8", "bool") else 3)).astype(dtype)
    x = {
        "contiguous": base,
        "transposed": base.T,
        "sliced": base[::2, 1::3],
        "reversed": base[::-1, ::-1],
        "broadcast": np.broadcast_to(base[0], (5, 6)),
        "empty": base[:, :0],
        "offset": np.frombuffer(b"\0" + base.tobytes(), base.dtype, offset=1).reshape(4, 6),
    }[layout]
    result = model(x)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, x)
    # The same through the buffer protocol, which a Tensor speaks on both sides.
    tensor = model(memoryview(np.ascontiguousarray(x))) if dtype != "float16" and x.size else None
    if tensor is not None:
        assert tensor.dtype == dtype
        np.testing.assert_array_equal(tensor.numpy(), x)
        assert tensor.tolist() == x.tolist()


def test_bfloat16(archive: Archive) -> None:
    model = aotpack.load(archive("bfloat16"))
    bits = np.array([[0x3F80, 0xC000]], np.uint16)
    assert model(bits).tolist() in ([[0x3F80, 0xC000]], [[1.0, -2.0]])  # the latter when ml_dtypes is imported
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([[1.0, -2.0]], ml_dtypes.bfloat16)
    result = model(x)
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result, x)
    tensor = model(memoryview(bits))
    assert tensor.dtype == "bfloat16"
    assert tensor.tolist() == [[1.0, -2.0]]
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(tensor)
    np.testing.assert_array_equal(np.asarray(tensor), x)


class OldProducer:
    """A producer of before DLPack 1.0: no max_version, unversioned capsules."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_dlpack_in(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = affine_input()

    class NewProducer(OldProducer):
        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.array.__dlpack__(**kwargs)

    for producer in (OldProducer, NewProducer):
        result = model(producer(x))
        assert type(result) is aotpack.Tensor
        np.testing.assert_array_equal(result.numpy(), x * W + 1)


def test_dlpack_out(archive: Archive) -> None:
    tensor = aotpack.load(archive("affine"))(memoryview(affine_input()))
    assert tensor.__dlpack_device__() == (1, 0)
    expected = affine_input() * W + 1
    versioned, legacy = np.from_dlpack(tensor), np.from_dlpack(OldProducer(tensor))
    copied = np.from_dlpack(tensor, copy=True)
    for result in (versioned, legacy, copied, np.asarray(tensor), np.array(tensor), np.asarray(memoryview(tensor))):
        np.testing.assert_array_equal(result, expected)
    tensor.numpy()[0, 0] = 100
    assert versioned[0, 0] == legacy[0, 0] == 100
    assert copied[0, 0] == 1
    del tensor
    assert versioned[0, 0] == 100
    # A capsule that nobody consumes frees what it holds.
    aotpack.load(archive("affine"))(memoryview(affine_input())).__dlpack__(max_version=(1, 0))


def test_tensor_describes_itself(archive: Archive) -> None:
    tensor = aotpack.load(archive("affine"))(memoryview(affine_input(3)))
    assert (tensor.shape, tensor.strides, tensor.dtype) == ((3, 4), (4, 1), "float32")
    assert (tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (2, 12, 48, 3)
    assert repr(tensor) == "aotpack.Tensor(shape=(3, 4), dtype=float32)"
    with pytest.raises(TypeError):
        aotpack.Tensor()


# ---- wrong calls ----------------------------------------------------------------------------------------------------


def test_wrong_values_are_named(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    with pytest.raises(InputError, match=r"batch.* must be in \[1, 64\], got 65"):
        model(affine_input(65))
    with pytest.raises(InputError, match=r"float32.*float64"):
        model(affine_input().astype(np.float64))
    with pytest.raises(InputError, match="x"):
        model(np.zeros((2, 5), np.float32))
    with pytest.raises(InputError, match="2 dims"):
        model(np.zeros(4, np.float32))
    with pytest.raises(InputError, match="rank 17"):
        model(np.zeros((1,) * 17, np.float32))
    with pytest.raises(InputError, match="'x' must be an array, got list"):
        model([[1.0, 2.0, 3.0, 4.0]])
    with pytest.raises(InputError, match="'x' must be an array, got None"):
        model(None)
    with pytest.raises(InputError, match="byte order"):
        model(affine_input().astype(">f4"))
    with pytest.raises(InputError, match="dtype <U1"):
        model(np.array([["a"]]))
    with pytest.raises(InputError, match="multiples of its element size"):
        model(np.zeros((2, 4), [("a", "f4"), ("b", "u1")])["a"])
    with pytest.raises(ValueError, match="got 65"):
        model(affine_input(65))
    np.testing.assert_array_equal(model(affine_input()), affine_input() * W + 1)


def test_wrong_calls_are_named(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = affine_input()
    with pytest.raises(InputError, match="'x' is missing"):
        model()
    with pytest.raises(InputError, match="accepts 1 positional argument, got 2"):
        model(x, x)
    with pytest.raises(InputError, match="unknown argument 'y'") as info:
        model(x, y=x)
    assert info.value.hint == "the arguments are (x)"
    with pytest.raises(InputError, match="'x' is passed twice"):
        model(x, x=x)
    with pytest.raises(InputError, match="has 1 input, got 2"):
        model.run([x, x])
    with pytest.raises(InputError, match="input 'x' is missing"):
        model.run({})
    with pytest.raises(InputError, match="unknown input 'y'"):
        model.run({"x": x, "y": x})
    with pytest.raises(InputError, match="has 1 output, got 0"):
        model.run([x], out=[])
    with pytest.raises(InputError, match="output"):
        model.run([x], out=[np.empty((2, 5), np.float32)])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (9, ExecutionError, "cannot compute"),
        (10, ExecutionError, "index is out of range"),
        (-1, OutOfMemoryError, "no memory"),
    ],
)
def test_failures_inside_a_module(archive: Archive, value: int, error: type[Exception], message: str) -> None:
    model = aotpack.load(archive("failing"))
    with pytest.raises(error, match=message):
        model(np.array([value]))
    assert model(np.array([3])).tolist() == [3]


def test_runner_without_init_does_not_crash() -> None:
    from aotpack.runtime import Model

    with pytest.raises((RuntimeError, TypeError)):
        Model.__new__(Model)()


# ---- threads --------------------------------------------------------------------------------------------------------


def test_calls_run_at_once(archive: Archive) -> None:
    model = aotpack.load(archive("slow"))
    results: list[Any] = [None] * 8

    def work(i: int) -> None:
        results[i] = model(np.array([i], np.float32))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - began < 0.6  # one after the other: 0.8 s at least
    assert [result[0] for result in results] == list(range(8))


def test_one_context_serves_one_call_at_a_time(archive: Archive) -> None:
    context = aotpack.load(archive("counter")).context()
    seen: list[float] = []

    def work() -> None:
        for _ in range(200):
            seen.append(context().tolist()[0])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 1601))
