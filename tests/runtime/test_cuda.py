"""Models on CUDA devices from Python, with the driver without a GPU: what goes in and what comes out."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.errors import DeviceError, InputError, OutOfMemoryError, UnsupportedTargetError, WeightsError
from tests.support.archives import CompileC
from tests.support.cuda_archives import affine_archive, chain_archive, mutate_archive

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = 2 * X + np.array([1, 2, 3, 4], np.float32)


@pytest.fixture(scope="module")
def driver(fake_driver: Path) -> Iterator[ctypes.CDLL]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTPACK_LIBCUDA", str(fake_driver))
        patch.setenv("FAKE_CUDA_DEVICES", "9.0,9.0")
        library = ctypes.CDLL(str(fake_driver))
        library.fake_cuda_pending.argtypes = [ctypes.c_void_p]
        library.fake_cuda_live.restype = ctypes.c_size_t
        library.fake_cuda_calls.restype = ctypes.c_uint64
        yield library


@pytest.fixture
def model(driver: ctypes.CDLL, tmp_path: Path, compile_c: CompileC) -> aotpack.Model:
    return aotpack.load(affine_archive(tmp_path / "m.aotpack", compile_c), device="cuda:0")


class Producer:
    """An array of another library, over a tensor: says where it is and writes down the stream that it is asked for."""

    def __init__(self, tensor: aotpack.Tensor, device: tuple[int, int] | None = None, *, legacy: bool = False) -> None:
        self.tensor, self.device, self.legacy = tensor, device, legacy
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device or self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **kwargs: Any) -> Any:
        if self.legacy and kwargs:
            raise TypeError("unexpected keyword argument")
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **kwargs)


def test_arrays_of_the_host_go_in_and_tensors_of_the_device_come_out(model: aotpack.Model) -> None:
    assert model.device == "cuda:0"
    assert model.target == "cuda-sm_90"
    y = model(X)
    assert isinstance(y, aotpack.Tensor)
    assert y.device == "cuda:0"
    assert repr(y) == "aotpack.Tensor(shape=(2, 4), dtype=float32, device=cuda:0)"
    assert y.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(y.numpy(), Y)
    np.testing.assert_array_equal(np.asarray(y), Y)
    np.testing.assert_array_equal(np.asarray(y, dtype=np.float64), Y)
    assert y.tolist() == Y.tolist()
    np.testing.assert_array_equal(model(X.T.copy().T).numpy(), Y)


def test_a_tensor_of_the_device_goes_in_again(model: aotpack.Model) -> None:
    y = model(model(X))
    np.testing.assert_array_equal(y.numpy(), 2 * Y + np.array([1, 2, 3, 4]))


def test_memory_of_a_device_is_no_buffer(model: aotpack.Model) -> None:
    y = model(X)
    with pytest.raises(BufferError, match="the tensor is on a device"):
        memoryview(y)
    with pytest.raises(ValueError, match="is a copy"):
        y.__array__(copy=False)
    with pytest.raises(BufferError, match=r"is on cuda:0 and cannot be copied to that device"):
        y.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="as a copy only"):
        y.__dlpack__(dl_device=(1, 0), copy=False)


def test_dlpack_copies_to_the_host_where_it_is_asked_to(model: aotpack.Model) -> None:
    y = model(X)

    class OnHost:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **kwargs: Any) -> Any:
            return y.__dlpack__(dl_device=(1, 0), max_version=(1, 0))

    np.testing.assert_array_equal(np.from_dlpack(OnHost()), Y)  # type: ignore[arg-type]


@pytest.mark.parametrize("legacy", [False, True])
def test_another_librarys_tensor_is_ordered_by_its_producer(model: aotpack.Model, *, legacy: bool) -> None:
    given = Producer(model(X), legacy=legacy)
    y = model(given)
    np.testing.assert_array_equal(y.numpy(), 2 * Y + np.array([1, 2, 3, 4]))
    (stream,) = given.streams
    assert stream is not None
    assert stream > 2


def test_a_result_is_complete_when_it_is_handed_out(model: aotpack.Model, driver: ctypes.CDLL) -> None:
    given = Producer(model(X))
    model(given)
    assert driver.fake_cuda_pending(given.streams[0]) == 0


def test_a_tensor_on_the_wrong_device(model: aotpack.Model) -> None:
    elsewhere = aotpack.load(model.path, device="cuda:1")
    y = elsewhere(X)
    assert y.device == "cuda:1"
    with pytest.raises(InputError, match=r"argument 'x' must be in CPU memory or on cuda:0, but is on cuda:1"):
        model(y)
    with pytest.raises(InputError, match="but is on cuda:1"):
        model(Producer(y))
    with pytest.raises(InputError, match="but is on metal:0"):
        model(Producer(y, (8, 0)))
    with pytest.raises(UnsupportedTargetError, match="there is no cuda:2: the CUDA driver finds 2 devices"):
        aotpack.load(model.path, device="cuda:2")


def test_results_are_written_to_arrays_of_host_and_device(model: aotpack.Model) -> None:
    near = np.zeros((2, 4), np.float32)
    far = model(np.zeros((2, 4), np.float32))
    assert model.run([X], out=[near])[0] is near
    np.testing.assert_array_equal(near, Y)
    assert model.run([X], out=[far])[0] is far
    np.testing.assert_array_equal(far.numpy(), Y)


def test_inputs_that_are_written_to_and_state(driver: ctypes.CDLL, tmp_path: Path, compile_c: CompileC) -> None:
    model = aotpack.load(mutate_archive(tmp_path / "m.aotpack", compile_c), device="cuda:0")
    context = model.context()
    x = np.zeros(4, np.float32)
    view, total = context(x)
    np.testing.assert_array_equal(x, [1, 1, 1, 1])
    assert view.tolist() == [1, 1, 1, 1]
    assert total.tolist() == [101]
    context(view)
    assert view.tolist() == [2, 2, 2, 2]
    state = context.state()
    assert state["total"].device == "cuda:0"
    assert state["total"].tolist() == [102]
    context.reset()
    assert context(view)[1].tolist() == [101]
    context.load_state(state)
    assert context(view)[1].tolist() == [103]
    context.load_state({"total": np.array([7], np.float32)})
    assert context(view)[1].tolist() == [8]


def test_weights_are_replaced_by_arrays_of_host_and_device(
    driver: ctypes.CDLL, tmp_path: Path, compile_c: CompileC
) -> None:
    model = aotpack.load(affine_archive(tmp_path / "m.aotpack", compile_c, updatable=True), device="cuda:0")
    context = model.context()
    w = np.array([5, 6, 7, 8], np.float32)
    assert list(model.weights) == ["w"]
    model.update_weights({"w": w})
    for _ in range(3):
        np.testing.assert_array_equal(context(X).numpy(), 2 * X + w)
    model.update_weights({"w": model.to_device(w + 1)})
    np.testing.assert_array_equal(context(X).numpy(), 2 * X + w + 1)
    # The producer orders its work with the stream that reads the tensor.
    given = Producer(model.to_device(w + 2))
    model.update_weights({"w": given})
    assert given.streams == [1]
    np.testing.assert_array_equal(context(X).numpy(), 2 * X + w + 2)
    elsewhere = aotpack.load(model.path, device="cuda:1").to_device(w)
    with pytest.raises(WeightsError, match=r"weight 'w' must be in CPU memory or on cuda:0, but is on cuda:1"):
        model.update_weights({"w": elsewhere})
    driver.fake_cuda_fail(b"cuMemAlloc_v2", 1, 2)
    with pytest.raises(OutOfMemoryError, match=r"out of memory: 256 bytes for weights on cuda:0"):
        model.update_weights({"w": w})
    np.testing.assert_array_equal(context(X).numpy(), 2 * X + w + 2)
    assert model.weight_generation == 3
    model.reset_weights()
    np.testing.assert_array_equal(context(X).numpy(), Y)


def test_threads_share_a_model(model: aotpack.Model) -> None:
    def check(value: int) -> bool:
        x = np.full((1, 4), value, np.float32)
        return bool((model(x).numpy() == 2 * x + np.array([1, 2, 3, 4])).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(200)))


def test_memory_is_steady_and_goes_with_its_owners(driver: ctypes.CDLL, tmp_path: Path, compile_c: CompileC) -> None:
    before = driver.fake_cuda_live()
    model = aotpack.load(affine_archive(tmp_path / "m.aotpack", compile_c), device="cuda:0")
    y = model(X)
    live = driver.fake_cuda_live()
    for _ in range(1000):
        y = model(y)
    assert driver.fake_cuda_live() <= live + 1
    del model
    assert y.numpy().shape == (2, 4)
    del y
    assert driver.fake_cuda_live() == before


def test_arrays_are_copied_to_the_device(model: aotpack.Model) -> None:
    far = model.to_device(X.T)
    assert (far.device, far.shape, far.dtype) == ("cuda:0", (4, 2), "float32")
    np.testing.assert_array_equal(far.numpy(), X.T)
    np.testing.assert_array_equal(model(model.to_device(X)).numpy(), Y)
    np.testing.assert_array_equal(model.context().to_device(far).numpy(), X.T)
    assert model.to_device(np.zeros((0, 3), np.int8)).shape == (0, 3)
    with pytest.raises(InputError, match="argument 'array' must be an array"):
        model.to_device("no array")
    with pytest.raises(InputError, match="argument 'array' must be in CPU memory or on cuda:0, but is on cuda:1"):
        model.to_device(aotpack.load(model.path, device="cuda:1").to_device(X))


def test_calls_on_a_stream_of_the_callers_do_not_wait(model: aotpack.Model, driver: ctypes.CDLL) -> None:
    given = Producer(model(X))
    model(given)
    context = model.context(stream=given.streams[0])
    far = model.to_device(X)
    for _ in range(3):
        y = context(far)
        assert driver.fake_cuda_pending(given.streams[0]) > 0
        context.synchronize()
        assert driver.fake_cuda_pending(given.streams[0]) == 0
        np.testing.assert_array_equal(y.numpy(), Y)
    with pytest.raises(InputError, match="is not one of cuda:0"):
        model.context(stream=12345)
    for stream in (0, 1, 2):
        context = model.context(stream=stream)
        y = context(far)
        context.synchronize()
        np.testing.assert_array_equal(y.numpy(), Y)


def test_graphs_change_no_answer(driver: ctypes.CDLL, tmp_path: Path, compile_c: CompileC) -> None:
    path = chain_archive(tmp_path / "m.aotpack", compile_c)
    w = np.array([1, 2, 3, 4], np.float32)
    for graphs in (None, 0, 1):
        context = aotpack.load(path, device="cuda:0", graphs=graphs).context()
        before = driver.fake_cuda_calls(b"cuGraphLaunch")
        kept = []
        for round_ in range(20):
            x = X + round_
            y, z = context(x, 3)
            kept.append((x, y))
            np.testing.assert_array_equal(z.numpy(), x + w)
        for x, y in kept:
            np.testing.assert_array_equal(y.numpy(), 2 * (3 * (x + w) + w) + w)
        assert driver.fake_cuda_calls(b"cuGraphLaunch") - before == (0 if graphs == 0 else 19)


@pytest.mark.parametrize("graphs", [-1, 4097])
def test_the_number_of_graphs_is_checked(graphs: int) -> None:
    with pytest.raises(ValueError, match=rf"graphs must be in \[0, 4096\], got {graphs}"):
        aotpack.load("m.aotpack", graphs=graphs)


def test_errors_of_the_device_have_a_class_of_their_own(model: aotpack.Model, driver: ctypes.CDLL) -> None:
    model = aotpack.load(model.path, device="cuda:0", graphs=0)
    model(X)
    driver.fake_cuda_fail(b"cuLaunchKernel", 1, 1)
    with pytest.raises(DeviceError, match=r"cuda:0: launching kernel 'affine' \(grid 1 x 1 x 1, block 128 x 1 x 1"):
        model(X)
    driver.fake_cuda_recover()
    np.testing.assert_array_equal(model(X).numpy(), Y)


LOST = """
import ctypes, os, sys
import numpy as np
import aotpack, aotpack.errors

path, x = sys.argv[1], np.ones((2, 4), np.float32)
driver = ctypes.CDLL(os.environ["AOTPACK_LIBCUDA"])
model = aotpack.load(path, device="cuda:0", graphs=0)
model(x)
driver.fake_cuda_fail(b"cuLaunchKernel", 1, 700)  # CUDA_ERROR_ILLEGAL_ADDRESS
for call in [
    lambda: model(x),
    lambda: model(x),
    lambda: model(np.ones((2000, 4), np.float32)),
    lambda: aotpack.load(path, device="cuda:0"),
]:
    try:
        call()
    except aotpack.errors.AotpackError as error:
        print(type(error).__name__, error)
other = aotpack.load(path, device="cuda:1")
print(other(x).numpy().shape)
driver.fake_cuda_fail(b"cuMemAlloc_v2", 1, 700)
try:
    other(np.ones((1 << 20, 4), np.float32))
except aotpack.errors.AotpackError as error:
    print(type(error).__name__, error)
"""


def test_a_lost_device_is_not_out_of_memory(model: aotpack.Model) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(model.path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, *later, other, allocation = done.stdout.splitlines()
    assert first.startswith("DeviceError ")
    assert first.endswith("this process cannot use the device any more")
    assert len(later) == 3
    for line in later:
        assert "DeviceError " in line
        assert "this process cannot use cuda:0 any more, since an earlier error: cuda:0: launching kernel" in line
    assert other == "(2, 4)"
    assert "this process cannot use cuda:1 any more, since an earlier error: cuda:1: an allocation" in allocation
