"""Whatever an argument's `__dlpack__` or buffer does, a call computes the right values or raises an error."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import aotpack
from aotpack.errors import AotpackError
from tests.fuzz.rounds import rounds

_DTYPES = ["float32", "float32", "float32", "float64", "int8", "int64", "bool", "complex64", "uint16", ">f4", "S4", "O"]


class Exporter:
    """An argument whose methods do what they like."""

    def __init__(self, array: Any, generator: random.Random, given: list[Any]) -> None:
        self.array, self.generator, self.given = array, generator, given

    def __dlpack_device__(self) -> Any:
        return self.generator.choice([(1, 0), (1, 0), (1, 0), (2, 0), (1,), None, "cpu", (99, -1)])

    def __dlpack__(self, **options: Any) -> Any:
        action = self.generator.randrange(8)
        if action == 0:
            raise ValueError("no such luck")
        if action == 1:
            return self.generator.choice([None, 3, "capsule", object(), self])
        if action == 2:
            # The list that the call goes through.
            self.given.clear()
        if action == 3:
            self.given[:] = [None] * self.generator.randrange(4)
        if action == 4:
            # One that somebody has used already.
            capsule = self.array.__dlpack__()
            np.from_dlpack(_Holder(capsule))
            return capsule
        return self.array.__dlpack__(**options) if self.generator.random() < 0.5 else self.array.__dlpack__()


class _Holder:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_arguments(archive: Callable[[str], Path]) -> None:
    model = aotpack.load(archive("affine"))
    scale = np.array([1, 2, 3, 4], np.float32)
    accepted = 0
    for generator in rounds("arguments", 3000):
        array = _array(generator)
        given: list[Any] = []
        argument = Exporter(array, generator, given) if generator.random() < 0.5 else array
        given.append(argument)
        try:
            call = generator.choice([lambda: model(argument), lambda: model(x=argument), lambda: model(*given)])  # noqa: B023
            result = np.asarray(call())
        except (AotpackError, TypeError, ValueError, BufferError, AttributeError):
            continue
        accepted += 1
        np.testing.assert_allclose(result, array * scale + 1, rtol=1e-6)
    assert accepted != 0


def _array(generator: random.Random) -> Any:
    shape = (generator.randrange(1, 6), 4)
    if generator.random() < 0.2:
        shape = tuple(generator.randrange(6) for _ in range(generator.randrange(4)))  # type: ignore[assignment]
    array = np.zeros([3 * size + 1 for size in shape], generator.choice(_DTYPES))
    array[...] = generator.randrange(5) if array.dtype.kind != "S" else b"x"
    # Any strides, flips, and repeated elements.
    index = tuple(
        slice(None, size)
        if (step := generator.choice([1, 1, 2, 3, -1])) == 1
        else slice(size - 1, None, -1)
        if step == -1
        else slice(0, step * size, step)
        for size in shape
    )
    array = array[(*index, ...)]
    if generator.random() < 0.1 and array.ndim:
        array = np.broadcast_to(array[:1], shape)
    if generator.random() < 0.1 and array.ndim == 2:
        array = np.asfortranarray(array)
    if generator.random() < 0.1:
        array.flags.writeable = False
    return array
