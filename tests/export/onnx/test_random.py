"""Operators of random numbers in an archive: their distributions, and that calls differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tests.export.onnx.joined import JoinedArchive
from tests.export.onnx.one_node import Array, one_node

pytestmark = pytest.mark.torch

_COUNT = 40_000
# Of standard errors: a right distribution is farther off in 6 of 10**7 runs.
_FAR = 5.0


def _typed(op: str, code: int, sizes: list[int], *inputs: Any, **attributes: Any) -> onnx.ModelProto:
    model = one_node(op, inputs, **attributes)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("o0", code, sizes))
    return model


_SHAPE = [200, 200]
_CHANCES = np.full(_SHAPE, 0.3, np.float32)
_WEIGHTS = np.log(np.array([[0.2, 0.5, 0.3]], np.float32))
_FLOAT, _DOUBLE, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64
_CALLS: dict[str, tuple[onnx.ModelProto, list[Array]]] = {
    "normal": (_typed("RandomNormal", _FLOAT, _SHAPE, shape=_SHAPE, mean=3.0, scale=2.0), []),
    "normal like": (_typed("RandomNormalLike", _DOUBLE, _SHAPE, _CHANCES, mean=3.0, scale=2.0, dtype=11), [_CHANCES]),
    "uniform": (_typed("RandomUniform", _FLOAT, _SHAPE, shape=_SHAPE, low=-1.0, high=4.0), []),
    "uniform like": (_typed("RandomUniformLike", _FLOAT, _SHAPE, _CHANCES, low=-1.0, high=4.0), [_CHANCES]),
    "bernoulli": (_typed("Bernoulli", _FLOAT, _SHAPE, _CHANCES), [_CHANCES]),
    "multinomial": (
        _typed("Multinomial", _INT64, [1, _COUNT], _WEIGHTS, sample_size=_COUNT, dtype=_INT64),
        [_WEIGHTS],
    ),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Array]]]:
    """What two calls return."""
    archive = JoinedArchive(_CALLS, tmp_path_factory.mktemp("random"))
    yield [{name: values[0].numpy() for name, values in archive.results().items()} for _ in range(2)]
    archive.close()


def _near(value: float, wanted: float, deviation: float) -> None:
    assert abs(value - wanted) < _FAR * deviation / _COUNT**0.5


@pytest.mark.parametrize("name", _CALLS)
def test_calls_differ(name: str, calls: list[dict[str, Array]]) -> None:
    assert not np.array_equal(calls[0][name], calls[1][name])


@pytest.mark.parametrize("name", ["normal", "normal like"])
def test_normal(name: str, calls: list[dict[str, Array]]) -> None:
    for found in (call[name] for call in calls):
        assert (found.dtype, found.shape) == (np.dtype("f8" if "like" in name else "f4"), (200, 200))
        _near(found.mean(), 3, 2)
        _near(found.var(), 4, 4 * 2**0.5)
        _near((found < 1).mean(), 0.158655, 0.366)


@pytest.mark.parametrize("name", ["uniform", "uniform like"])
def test_uniform(name: str, calls: list[dict[str, Array]]) -> None:
    for found in (call[name] for call in calls):
        assert found.min() >= -1
        assert found.max() < 4
        _near(found.mean(), 1.5, 5 / 12**0.5)
        _near((found < 0).mean(), 0.2, 0.4)


def test_bernoulli(calls: list[dict[str, Array]]) -> None:
    for found in (call["bernoulli"] for call in calls):
        assert set(np.unique(found)) == {0, 1}
        _near(found.mean(), 0.3, 0.46)


def test_multinomial(calls: list[dict[str, Array]]) -> None:
    for found in (call["multinomial"] for call in calls):
        assert set(np.unique(found)) == {0, 1, 2}
        for place, chance in enumerate((0.2, 0.5, 0.3)):
            _near((found == place).mean(), chance, (chance * (1 - chance)) ** 0.5)
