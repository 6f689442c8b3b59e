"""Two GPUs in one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

import aotpack
from aotpack.errors import InputError
from tests.gpu.conftest import Built
from tests.gpu.gpus import needs_two_gpus, used_memory

pytestmark = needs_two_gpus

Array = npt.NDArray[np.float32]
INPUTS = [np.random.default_rng(size).standard_normal((size, 64), np.float32) for size in (1, 8, 100)]


def _check(model: aotpack.Model, expected: list[Array], turns: int) -> None:
    context = model.context()
    for turn in range(turns):
        for x, wanted in zip(INPUTS, expected, strict=True):
            near, far = context(x), context(context.to_device(x)) if turn % 2 else context(x)
            assert near.device == far.device == model.device
            np.testing.assert_allclose(near.numpy(), wanted, rtol=0, atol=1e-5)
            np.testing.assert_allclose(far.numpy(), wanted, rtol=0, atol=1e-5)


def test_one_archive_on_both(built: Built) -> None:
    path = built("everywhere")
    expected = [np.asarray(aotpack.load(path)(x)) for x in INPUTS]
    models = [aotpack.load(path, device=f"cuda:{index}") for index in range(2)]
    # Interleaved in one thread, then from two at a time.
    for _ in range(20):
        for model in models:
            _check(model, expected, 1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda model: _check(model, expected, 200), models))


def test_contexts_of_both_take_turns_on_a_thread(built: Built) -> None:
    path = built("state")
    contexts = [aotpack.load(path, device=f"cuda:{index}").context() for index in range(2)]
    x, places = np.random.default_rng(0).standard_normal((2, 64), np.float32), np.array([3, 5])
    for _ in range(50):
        first, second = (context(x, places).numpy() for context in contexts)
        np.testing.assert_array_equal(first, second)


def test_weights_are_uploaded_once_for_each_device(built: Built) -> None:
    path = built("large")
    size = 64 << 20
    x = np.ones((2, 4096), np.float32)
    for index in range(2):
        # The device's context, and what other models hold.
        aotpack.load(built("everywhere"), device=f"cuda:{index}")(INPUTS[0])
    before = [used_memory(index) for index in range(2)]
    models = []
    for index in range(2):
        models.append(aotpack.load(path, device=f"cuda:{index}"))
        after = [used_memory(other) - before[other] for other in range(2)]
        assert size <= after[index] < size + (16 << 20)
        assert index == 1 or after[1] == 0
    contexts = [model.context() for model in models for _ in range(4)]
    results = [context(x).numpy() for context in contexts]
    for index in range(2):
        assert used_memory(index) - before[index] < size + (32 << 20)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    del contexts, models, results
    for index in range(2):
        assert used_memory(index) - before[index] < 16 << 20


def test_inputs_on_the_other_device(built: Built) -> None:
    first, second = (aotpack.load(built("everywhere"), device=f"cuda:{index}") for index in range(2))
    y = second.to_device(INPUTS[0])
    with pytest.raises(InputError, match=r"argument 'input' must be in CPU memory or on cuda:0, but is on cuda:1"):
        first(y)
    np.testing.assert_array_equal(first(INPUTS[0]).numpy(), second(y).numpy())
