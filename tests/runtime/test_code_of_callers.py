"""Arguments that run code of the caller's while they are read, and change what the call was given."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpack

Archive = Callable[[str], Path]


class Changing:
    """An array that does something when it is read."""

    def __init__(self, array: Any, change: Callable[[], object]) -> None:
        self.array = array
        self.change = change

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        self.change()
        gc.collect()
        # Takes the places that were freed, so that reading them is seen.
        self.litter = [np.full(64, 7.0, np.float32) for _ in range(50)]
        return self.array.__dlpack__()


def x(*sizes: int) -> np.ndarray[Any, Any]:
    return np.ones(sizes, np.float32)


@pytest.fixture
def two(archive: Archive) -> aotpack.Model:
    """x [n] and a scale give x + scale and x - scale."""
    return aotpack.load(archive("list"))


def expect(results: Any) -> None:
    np.testing.assert_array_equal(np.asarray(results[0]), [11, 11, 11])
    np.testing.assert_array_equal(np.asarray(results[1]), [-9, -9, -9])


def test_a_list_that_is_cleared_while_it_is_read(two: aotpack.Model) -> None:
    inputs: list[Any] = []
    inputs += [Changing(x(3), inputs.clear), np.array(10, np.float32)]
    expect(two.run(inputs))
    inputs += [x(3), Changing(np.array(10, np.float32), inputs.clear)]
    expect(two.run(inputs))


def test_a_list_of_buffers_that_is_cleared_while_it_is_read(two: aotpack.Model) -> None:
    out: list[Any] = []
    first, second = x(3), x(3)
    out += [Changing(first, out.clear), Changing(second, out.clear)]
    two.run([x(3), np.array(10, np.float32)], out=out)
    expect([first, second])


def test_keywords_that_are_removed_while_they_are_read(two: aotpack.Model) -> None:
    keywords: dict[str, Any] = {}
    keywords.update(x=Changing(x(3), keywords.clear), scale=np.array(10, np.float32))
    expect(two(**keywords))
    # The slot itself, with the caller's own dict.
    keywords.update(x=Changing(x(3), keywords.clear), scale=np.array(10, np.float32))
    expect(type(two).__call__(two, **keywords))


def test_an_array_that_is_reshaped_after_it_was_read(two: aotpack.Model) -> None:
    for _ in range(50):
        first = x(3)

        def reshape(array: Any = first) -> None:
            array.shape = (1,) * 30 + (3,)

        expect(two.run([first, Changing(np.array(10, np.float32), reshape)]))


def test_weights_whose_mapping_changes(archive: Archive) -> None:
    model = aotpack.load(archive("updatable"))
    weights: dict[str, Any] = {
        name: np.ones([int(size) for size in spec.shape], spec.dtype.value.replace("bfloat16", "uint16"))  # type: ignore[call-overload]
        for name, spec in model.weights.items()
    }
    wrapped = {name: Changing(array, weights.clear) for name, array in weights.items()}
    weights.update(wrapped)
    model.update_weights(weights)
    assert model.weight_generation == 1


def test_types_that_are_met_while_another_is_learnt(two: aotpack.Model) -> None:
    """Asking a type runs code, which meets more types than are remembered."""
    scale = np.array(10, np.float32)

    class Meta(type):
        def __getattr__(cls, name: str) -> Any:
            for _ in range(10):
                other = type("Other", (Changing,), {})
                two.run([other(x(3), lambda: None), scale])
            raise AttributeError(name)

    class Odd(Changing, metaclass=Meta):
        pass

    for _ in range(3):
        expect(two.run([Odd(x(3), lambda: None), scale]))
