"""Calls as CUDA graphs on a GPU: `python -m pytest -n 0 tests/gpu`. Skipped where there is none."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import aotpack
from tests.gpu.kernels import cubin, find_ptxas
from tests.gpu.test_runtime import CAPABILITY
from tests.support.archives import CompileC
from tests.support.cuda_archives import chain_archive, mutate_archive

W = np.array([1, 2, 3, 4], np.float32)
Floats = npt.NDArray[np.float32]

pytestmark = pytest.mark.skipif(
    CAPABILITY != (9, 0) or find_ptxas() is None, reason="needs a GPU of capability 9.0 and ptxas"
)


def expected(x: Floats, k: int) -> Floats:
    return 2 * (k * (x + W) + W) + W


@pytest.fixture
def path(tmp_path: Path, compile_c: CompileC) -> Path:
    return chain_archive(tmp_path / "m.aotpack", compile_c, cubin("affine", "sm_90", tmp_path))


def rows(count: int, first: float = 0) -> Floats:
    return np.arange(first, first + 4 * count, dtype=np.float32).reshape(count, 4)


@pytest.mark.parametrize("graphs", [None, 0, 1])
def test_answers(path: Path, graphs: int | None) -> None:
    context = aotpack.load(path, device="cuda:0", graphs=graphs).context()
    kept: list[tuple[Any, Floats]] = []
    for round_ in range(100):
        x, k = rows(1 + round_ % 3, round_), 1 + round_ % 2
        y, z = context(x, k)
        right = expected(x, k)
        np.testing.assert_array_equal(z.numpy(), x + W)
        np.testing.assert_array_equal(context(y, k)[0].numpy(), expected(right, k))
        kept.append((y, right))
        if round_ % 5 == 4:
            del kept[::2]
    for value, right in kept:
        np.testing.assert_array_equal(value.numpy(), right)


def test_state(tmp_path: Path, compile_c: CompileC) -> None:
    path = mutate_archive(tmp_path / "m.aotpack", compile_c, cubin("increment", "sm_90", tmp_path))
    context = aotpack.load(path, device="cuda:0").context()
    x = np.zeros(4, np.float32)
    for round_ in range(1, 50):
        view, total = context(x)
        assert x.tolist() == [round_] * 4
        assert total.tolist() == [100 + round_]
        context(view)
        assert view.tolist() == [round_ + 1] * 4
        context.load_state({"total": np.array([100 + round_], np.float32)})
    context.reset()
    assert context(x)[1].tolist() == [101]


@pytest.mark.parametrize("k", [96, 97, 98])
def test_work_that_cannot_be_recorded(path: Path, k: int) -> None:
    model = aotpack.load(path, device="cuda:0")
    for _ in range(10):
        np.testing.assert_array_equal(model(rows(2), k)[0].numpy(), expected(rows(2), k))
        np.testing.assert_array_equal(model(rows(2), 3)[0].numpy(), expected(rows(2), 3))


def test_threads(path: Path) -> None:
    model = aotpack.load(path, device="cuda:0")

    def check(value: int) -> bool:
        x = rows(1 + value % 4, value % 1000)
        return bool((model(x, value % 3)[0].numpy() == expected(x, value % 3)).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(20000)))


def test_streams_of_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    model = aotpack.load(path, device="cuda:0")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            kept = []
            for round_ in range(300):
                x = torch.full((1 << 14, 4), float(round_), device="cuda")
                kept.append((round_, model(x, 2)[0]))
                if round_ % 3 == 2:
                    kept.pop(round_ % len(kept))
            for first, value in kept:
                right = torch.tensor(expected(np.full((1, 4), first, np.float32), 2), device="cuda")
                assert bool((value == right).all())


def test_capture_by_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    model = aotpack.load(path, device="cuda:0")
    busy = torch.cuda.Stream()
    x = torch.ones(8, 4, device="cuda")
    model(x, 2)
    # Another thread's capture is not disturbed by the making of graphs.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=busy, capture_error_mode="thread_local"), ThreadPoolExecutor(1) as pool:
        y = x * 2
        answers = pool.submit(lambda: [model(rows(2), 5)[0].numpy() for _ in range(10)]).result()
    for answer in answers:
        np.testing.assert_array_equal(answer, expected(rows(2), 5))
    graph.replay()
    torch.cuda.synchronize()
    assert bool((y == 2).all())


def test_cost_of_a_call(path: Path) -> None:
    for graphs in (0, None):
        context = aotpack.load(path, device="cuda:0", graphs=graphs).context()
        far = context(rows(2), 1)[0]
        for _ in range(100):
            context(far, 1)
        times = []
        for _ in range(2000):
            start = time.perf_counter()
            context(far, 1)
            times.append(time.perf_counter() - start)
        print(f"a call of 6 operations with its wait, graphs={graphs}: p50 {1e6 * sorted(times)[1000]:.1f} us")
