"""What is built and called: a file, sizes of its dims, and the kinds of its inputs. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Callable[[np.random.Generator, tuple[int, ...], str], Array]
Sizes = Mapping[str, int]
# Relative change of inputs, which shows how far rounding moves ONNX Runtime's own results.
NEARBY = 1e-6


@dataclass(frozen=True)
class FileCase:
    """A file with its calls.

    Attributes:
        name: in the table.
        source: the wheel that has the file, or the exporter that makes it.
        path: the path in the wheel; "" for a file that is made here.
        calls: sizes of the dynamic dims in each call, by the names of the file (`INPUT_AXIS` for a dim without one).
            The first are those of the example call.
        kinds: of inputs, by name; others are normal numbers, or 0 and 1 for integers.
        constants: values of inputs that become constants, as JSON.
        twin: the path of a file of the same wheel that computes the same by other operators, which is the reference:
            those of the file itself are imprecise in ONNX Runtime.
    """

    name: str
    source: str
    path: str = ""
    calls: tuple[Sizes, ...] = ({}, {})
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    twin: str = ""


def default(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal numbers; 0 and 1 for integers and bools."""
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def uniform(low: float, high: float) -> Kind:
    """Real numbers of a range."""
    return lambda generator, shape, dtype: generator.uniform(low, high, shape).astype(dtype)


def integers(low: int, high: int) -> Kind:
    """Integers from low to high - 1, of the input's dtype."""
    return lambda generator, shape, dtype: generator.integers(low, high, shape).astype(dtype)


def value(number: float) -> Kind:
    """One number everywhere."""
    return lambda generator, shape, dtype: np.full(shape, number, dtype)
