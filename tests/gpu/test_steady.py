"""Many calls on a GPU: memory stays as it is, and threads with many contexts get their own answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import aotpack
from tests.gpu.conftest import Built
from tests.gpu.gpus import needs_gpu, resident_memory, used_memory

pytestmark = needs_gpu

CALLS, WARM = 100_000, 5_000
# What the driver and the C library may still grow by: a leak of a byte a call is more.
MARGIN = 64 << 10
Arrays = tuple[npt.NDArray[Any], ...]


def _batches() -> Iterator[Arrays]:
    generator = np.random.default_rng(0)
    # More sizes than a context keeps graphs.
    sizes = (1, 2, 3, 4, 7, 8, 31, 32, 33, 64, 100, 128, 511, 512)
    return itertools.cycle([(generator.standard_normal((size, 64), np.float32),) for size in sizes])


def _one() -> Iterator[Arrays]:
    return itertools.repeat((np.random.default_rng(0).standard_normal((8, 64), np.float32),))


def _rows_of_state() -> Iterator[Arrays]:
    generator = np.random.default_rng(0)
    rows = [generator.permutation(16)[:2] for _ in range(16)]
    return itertools.cycle([(generator.standard_normal((2, 64), np.float32), places) for places in rows])


@pytest.mark.parametrize(
    ("name", "inputs"), [("mlp-fp32", _one), ("mlp-fp32-dynamic", _batches), ("state", _rows_of_state)]
)
@pytest.mark.parametrize("far", [True, False], ids=["of-the-device", "of-the-host"])
def test_memory_is_constant(built: Built, name: str, inputs: Callable[[], Iterator[Arrays]], *, far: bool) -> None:
    model = aotpack.load(built(name), device="cuda:0")
    context = model.context()
    calls = CALLS if far else CALLS // 5
    known: dict[tuple[bytes, ...], Arrays] = {}

    def given(arrays: Arrays) -> Any:
        if not far:
            return arrays
        key = tuple(array.tobytes() for array in arrays)
        if key not in known:
            known[key] = tuple(model.to_device(array) for array in arrays)
        return known[key]

    # Found before the calls: looking for them takes longer than a call.
    cycle = list(itertools.islice(inputs(), 16 * 14))
    ready = [given(arrays) for arrays in cycle]
    turn = itertools.cycle(ready)

    def call(count: int) -> aotpack.Tensor:
        for arrays in itertools.islice(turn, count):
            result = context(*arrays)
        return result

    context.reset()
    first = context(*ready[0]).numpy()
    result = call(WARM)
    device, host = used_memory(0), resident_memory()
    result = call(calls)
    assert used_memory(0) == device
    assert resident_memory() <= host + MARGIN, resident_memory() - host
    assert np.isfinite(result.numpy()).all()
    context.reset()
    np.testing.assert_array_equal(context(*ready[0]).numpy(), first)


def test_eight_threads_with_eight_contexts_each(built: Built) -> None:
    path = built("everywhere")
    near, far = aotpack.load(path, device="cpu", num_threads=1), aotpack.load(path, device="cuda:0")
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal((size, 64), np.float32) for size in (1, 2, 5, 8, 33, 64, 200, 512)]
    expected = [np.asarray(near(x)) for x in inputs]

    def check(number: int) -> float:
        contexts = [far.context() for _ in range(8)]
        kept = []
        worst = 0.0
        for turn in range(400):
            which = (turn + number) % 8
            kept.append((which, contexts[turn % 8](inputs[which])))
            # Results live on while others are computed.
            if len(kept) == 16:
                worst = max(float(np.abs(value.numpy() - expected[i]).max()) for i, value in kept)
                kept.clear()
        return worst

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(check, range(8))) < 1e-5
