"""What a model writes to: per context, readable, replaceable, resettable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.errors import WeightsError

Archive = Callable[[str], Path]


def count(context: Any) -> float:
    return float(np.asarray(context.state()["calls"])[0])


def test_state_accumulates_and_is_reset(archive: Archive) -> None:
    model = aotpack.load(archive("counter"), verify="full")
    first, second = model.context(), model.context()
    assert count(first) == 0
    assert [first().tolist(), first.entry("again")().tolist(), first().tolist()] == [[1.0], [2.0], [3.0]]
    assert count(first) == 3
    assert second().tolist() == [1.0]
    first.reset()
    assert count(first) == 0
    assert first().tolist() == [1.0]
    assert count(second) == 1


def test_state_is_a_copy_and_can_be_loaded(archive: Archive) -> None:
    model = aotpack.load(archive("counter"))
    first, second = model.context(), model.context()
    first()
    kept = first.state()
    assert isinstance(kept["calls"], aotpack.Tensor)
    assert kept["calls"].dtype == "float32"
    first()
    assert kept["calls"].tolist() == [1.0]
    second.load_state(kept)
    assert second().tolist() == [2.0]
    second.load_state({"calls": np.array([40.0, 41.0], np.float32)[1:]})
    assert second().tolist() == [42.0]
    torch = pytest.importorskip("torch")
    second.load_state({"calls": torch.tensor([7.0])})
    assert count(second) == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "'calls' is missing"),
        ({"calls": np.zeros(1, np.float64)}, r"'calls': expected float32 \[1\], got float64 \[1\]"),
        ({"calls": np.zeros(2, np.float32)}, r"expected float32 \[1\], got float32 \[2\]"),
        ({"calls": np.zeros(1, np.float32), "more": np.zeros(1)}, "there is no 'more'"),
        ({"calls": 3}, "must be an array, got int"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(archive: Archive, wrong: dict[str, Any], message: str) -> None:
    context = aotpack.load(archive("counter")).context()
    context()
    with pytest.raises(WeightsError, match=message) as info:
        context.load_state(wrong)
    assert count(context) == 1
    if "array" not in message:
        assert "Context.state()" in (info.value.hint or "")


def test_a_model_without_state(archive: Archive) -> None:
    context = aotpack.load(archive("affine")).context()
    assert context.state() == {}
    context.load_state({})
    context.reset()


def test_state_stays_over_an_update(archive: Archive) -> None:
    model = aotpack.load(archive("updatable"))
    called, idle = model.context(), model.context()
    x = np.zeros((1, 4), np.float32)
    assert called(x)[1].tolist() == [1.0]
    weights = {name: np.ones(spec.shape, spec.dtype.numpy_name) for name, spec in model.weights.items()}
    weights["count"][0] = 500
    model.update_weights(weights)
    assert called(x)[1].tolist() == [2.0]
    assert idle(x)[1].tolist() == [501.0]
    called.reset()
    assert called(x)[1].tolist() == [501.0]
