"""Python numbers as arguments and results."""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack
from aotpack.errors import InputError

Archive = Callable[[str], Path]


class Three(enum.IntEnum):
    VALUE = 3


def plain(path: Path) -> aotpack.Model:
    """A model whose calls may not take the slow way."""
    from aotpack.runtime import Model

    class Plain(Model):
        def _call_structured(self, args: Any, kwargs: Any) -> Any:
            raise AssertionError("a plain call took the slow way")

    return Plain(path)


def expected(x: Any, n: int, scale: float, flag: bool) -> dict[str, Any]:
    y = np.arange(n) * scale
    product = float(x.sum(dtype=np.float64)) * scale
    return {"y": y[::-1] if flag else y, "total": n + len(x), "product": product, "other": not flag}


def check(result: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(result) == ["y", "total", "product", "other"]
    np.testing.assert_array_equal(result["y"], wanted["y"])
    assert (type(result["total"]), result["total"]) == (int, wanted["total"])
    assert type(result["product"]) is float
    assert result["product"] == pytest.approx(wanted["product"], rel=1e-12)
    assert (type(result["other"]), result["other"]) == (bool, wanted["other"])


def test_numbers_in_and_out(archive: Archive) -> None:
    model = plain(archive("numbers"))
    generator = random.Random()
    for _ in range(50):
        x = np.random.default_rng().standard_normal(generator.randrange(6)).astype(np.float32)
        n, scale, flag = generator.randint(1, 10), generator.uniform(-2, 2), generator.random() < 0.5
        wanted = expected(x, n, scale, flag)
        check(model(x, n, scale=scale, flag=flag), wanted)
        check(model(x=x, n=n, scale=scale, flag=flag), wanted)
        result = model.run([x, n, scale, flag])
        check(dict(zip(wanted, result, strict=True)), wanted)
        check(dict(zip(wanted, model.run({"flag": flag, "n": n, "x": x, "scale": scale}), strict=True)), wanted)


@pytest.mark.parametrize("n", [3, Three.VALUE, np.int64(3), np.int8(3), np.uint64(3), np.array(3)], ids=repr)
@pytest.mark.parametrize(
    "scale", [0.5, np.float64(0.5), np.float32(0.5), np.float16(0.5), np.array(0.5), 2, np.int16(2)], ids=repr
)
@pytest.mark.parametrize("flag", [True, False, np.True_, np.array(False)], ids=repr)
def test_what_passes_for_a_number(archive: Archive, n: Any, scale: Any, flag: Any) -> None:
    x = np.ones(2, np.float32)
    check(plain(archive("numbers"))(x, n, scale=scale, flag=flag), expected(x, 3, float(scale), bool(flag)))


@pytest.mark.parametrize("i", [0, -1, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("f", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, -1.0])
def test_every_number_arrives(archive: Archive, i: int, f: float) -> None:
    result = plain(archive("echo"))(i, f, i == 0)
    assert [type(value) for value in result] == [int, float, bool]
    assert result[0] == i
    assert result[1] == f or (math.isnan(f) and math.isnan(result[1]))
    assert math.copysign(1, result[1]) == math.copysign(1, f) or math.isnan(f)
    assert result[2] is (i == 0)


def test_an_int_passes_for_a_float_as_float_of_it_does(archive: Archive) -> None:
    model = plain(archive("echo"))
    for value in (7, (1 << 53) + 1, 10**300):
        assert model(0, value, False)[1] == float(value)
    with pytest.raises(InputError, match="'f' must fit 64 bits"):
        model(0, 10**400, False)


def test_numbers_inside_of_structures(archive: Archive) -> None:
    model = aotpack.load(archive("nested_numbers"))
    x = np.array([1, 2], np.float32)
    (y, total), (product, other) = model(x, {"n": 3, "rest": (0.5, True, 7)})
    check({"y": y, "total": total, "product": product, "other": other}, expected(x, 3, 0.5, True))
    with pytest.raises(InputError, match="must be a bool, got 1"):
        model(x, {"n": 3, "rest": (0.5, 1, 7)})


def test_the_library_of_the_arrays_decides_not_that_of_the_numbers(archive: Archive) -> None:
    model = plain(archive("numbers"))
    x = memoryview(np.ones(2, np.float32))
    assert type(model(x, np.int64(2), scale=np.float64(1), flag=np.True_)["y"]) is aotpack.Tensor
    assert type(model(np.ones(2, np.float32), 2, scale=1.0, flag=True)["y"]) is np.ndarray


def test_numbers_into_given_buffers(archive: Archive) -> None:
    model = aotpack.load(archive("numbers"))
    x = np.array([1, 2], np.float32)
    wanted = expected(x, 3, 0.5, False)
    inputs = [x, 3, 0.5, False]

    # All as arrays.
    out = [np.zeros(3), np.array(0), np.array(0.0), np.array(False)]
    assert all(a is b for a, b in zip(model.run(inputs, out=out), out, strict=True))
    check({key: a.item() if a.ndim == 0 else a for key, a in zip(wanted, out, strict=True)}, wanted)

    # None in the place of a number: it is in the result.
    y = np.zeros(3)
    for given in ([y, None, None, None], (y, None, None, None), {"y": y}, {"y": y, "product": None}):
        y[:] = -1
        result = model.run(inputs, out=given)
        assert result[0] is y
        check(dict(zip(wanted, result, strict=True)), wanted)
    product = np.array(0.0)
    result = model.run(inputs, out={"y": y, "product": product})
    assert result[2] is product
    assert product == wanted["product"]
    with pytest.raises(InputError, match="output 'y' is missing"):
        model.run(inputs, out={"product": product})


def test_a_number_is_a_size(archive: Archive) -> None:
    model = aotpack.load(archive("numbers"))
    assert model.signature.inputs[1].dim == "n"
    for n in (1, 10):
        assert model(np.ones(1, np.float32), n, scale=1.0, flag=False)["y"].shape == (n,)
