"""jax arrays in, jax arrays out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotpack
from aotpack.errors import InputError

Archive = Callable[[str], Path]


@pytest.fixture(scope="module")
def jax() -> Any:
    """Not imported by all processes that collect tests: that takes seconds."""
    return importlib.import_module("jax")


def test_jax_in_jax_out(archive: Archive, jax: Any) -> None:
    x = jax.numpy.arange(8, dtype="float32").reshape(2, 4)
    result = aotpack.load(archive("affine"))(x)
    assert isinstance(result, jax.Array)
    assert result.tolist() == [[1, 3, 7, 13], [5, 11, 19, 29]]


def test_bfloat16(archive: Archive, jax: Any) -> None:
    result = aotpack.load(archive("bfloat16"))(jax.numpy.full((1, 2), 1.5, "bfloat16"))
    assert result.dtype == "bfloat16"
    assert result.tolist() == [[1.5, 1.5]]


def test_jax_arrays_are_never_written_to(archive: Archive, jax: Any) -> None:
    model = aotpack.load(archive("affine"))
    with pytest.raises(InputError, match="'x' is written to"):
        aotpack.load(archive("in_place"))(jax.numpy.ones((2, 3)))
    x = jax.numpy.ones((1, 4))
    with pytest.raises(InputError, match="read-only"):
        model.run([x], out=[x])
