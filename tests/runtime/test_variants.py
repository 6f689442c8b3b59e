"""Which variant a call takes, and that the context says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aotpack
from aotpack.archive.code import evaluate
from aotpack.errors import InputError
from tests.support.recipes import RECIPES

Archive = Callable[[str], Path]


def fitting(batch: int, length: int) -> str | None:
    """The variant of the recipe that should take such a call, by the manifest's guards and checks."""
    values = {"batch": batch, "length": length}
    for variant in RECIPES["variants"].variants:
        guards = all(
            guard.min <= values[guard.dim]
            and (guard.max is None or values[guard.dim] <= guard.max)
            and values[guard.dim] % guard.multiple_of == 0
            for guard in variant.guards
        )
        if guards and all(evaluate(check.code, values) for check in variant.checks):
            return variant.name
    return None


def test_the_first_that_fits_is_taken(archive: Archive) -> None:
    model = aotpack.load(archive("variants"))
    assert model.variants == ["batch=1", "even", "general"]
    context = model.context()
    assert context.variants == model.variants
    assert context.variant is None
    taken = set()
    for batch in (0, 1, 2, 3, 4, 7, 8, 62, 63, 64, 66, 200, 256, 1024, 1026):
        for length in (0, 1, 3, 8):
            wanted = fitting(batch, length)
            x = np.random.default_rng().standard_normal((batch, length)).astype(np.float32)
            if wanted is None:
                before = context.variant
                with pytest.raises(InputError, match="no variant of entry 'forward' matches"):
                    context(x)
                assert context.variant == before
            else:
                a, b = context(x)
                np.testing.assert_array_equal(a, x + 1)
                np.testing.assert_array_equal(b, np.arange(length // 2 * batch))
                assert context.variant == wanted
            taken.add(wanted)
    assert taken == {"batch=1", "even", "general", None}


def test_a_model_has_no_last_call(archive: Archive) -> None:
    model = aotpack.load(archive("variants"))
    model(np.zeros((1, 4), np.float32))
    assert model.variant is None
    assert model.entry("forward").variant is None


def test_every_context_and_entry_has_its_own(archive: Archive) -> None:
    model = aotpack.load(archive("variants"))
    first, second = model.context(), model.context()
    first(np.zeros((1, 4), np.float32))
    second(np.zeros((2, 4), np.float32))
    assert (first.variant, second.variant) == ("batch=1", "even")

    context = aotpack.load(archive("counter")).context()
    again = context.entry("again")
    context()
    assert (context.variant, again.variant) == ("default", None)
    again()
    assert (context.variant, again.variant) == ("default", "default")
    assert context.variants == ["default"]


def test_many_threads_at_once(archive: Archive) -> None:
    model = aotpack.load(archive("variants"))
    wrong: list[tuple[int, str | None]] = []

    def work(batch: int) -> None:
        context = model.context()
        for _ in range(200):
            context(np.zeros((batch, 8), np.float32))
            if context.variant != fitting(batch, 8) or fitting(batch, 8) is None:
                wrong.append((batch, context.variant))

    threads = [threading.Thread(target=work, args=(batch,)) for batch in (1, 2, 3, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
