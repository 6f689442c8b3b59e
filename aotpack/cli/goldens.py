"""Runs goldens on this machine and compares them with eager PyTorch's outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aotpack.archive import Golden, GoldenTensor
from aotpack.cli.arrays import Array, as_numbers, golden_array, inputs_of
from aotpack.runtime import Context
from aotpack.spec import DType, TensorSpec

if TYPE_CHECKING:
    from aotpack.runtime import Entry

# An output whose magnitude is less than this share of the greatest one's is compared as if it had this share: it may be
# zero but for rounding, as the gradient of a bias before a batch norm.
_NEGLIGIBLE = 1e-2

# The bytes of a tensor of a golden.
Read = Callable[[GoldenTensor], bytes]


@dataclass(frozen=True)
class OutputResult:
    """One output of a golden.

    Attributes:
        output: its name.
        error: the greatest difference from eager's answer, relative to the greatest magnitude there, or to a hundredth
            of that of all floating outputs if this is more.
        tolerance: the greatest error that is allowed.
        problem: an error other than a numerical difference, e.g. a wrong shape; None without one.
    """

    output: str
    error: float
    tolerance: float
    problem: str | None

    @property
    def ok(self) -> bool:
        """Whether the output matches eager's."""
        return self.problem is None and self.error <= self.tolerance


@dataclass(frozen=True)
class GoldenResult:
    """The result of a golden: the variant that ran, and a result for each output."""

    variant: str | None
    outputs: tuple[OutputResult, ...]


def run_golden(entry: Entry, golden: Golden, specs: tuple[TensorSpec, ...], read: Read) -> GoldenResult:
    """Calls the entry with a golden's inputs and compares the outputs, which `specs` describes, with eager's.

    Raises:
        AotpackError: the call fails.
    """
    # A separate context: state of earlier calls must not affect the result.
    context = Context(entry, num_threads=entry.num_threads, seed=0)
    inputs = inputs_of(golden, read)
    outputs = context.run(inputs)
    expected = [golden_array(tensor, read) for tensor in golden.outputs]
    rounds = [spec.dtype.is_floating or spec.dtype.is_complex for spec in specs]
    largest = max(
        (_scale(as_numbers(e, s.dtype)) for e, s, r in zip(expected, specs, rounds, strict=True) if r), default=0.0
    )
    results = []
    for spec, tensor, output, wanted, rounded in zip(specs, golden.outputs, outputs, expected, rounds, strict=True):
        # Integers must be equal.
        tolerance = golden.tolerance if rounded else 0.0
        problem, error = _compare(output, wanted, tensor, spec.dtype, largest * _NEGLIGIBLE if rounded else 0.0)
        results.append(OutputResult(spec.name, error, tolerance, problem))
    return GoldenResult(context.variant, tuple(results))


def _compare(
    output: object, expected: Array, tensor: GoldenTensor, dtype: DType, least: float
) -> tuple[str | None, float]:
    """(what is wrong beyond numbers, error relative to the greatest expected magnitude, but at least to `least`)."""
    actual = np.asarray(output)
    if actual.shape != tensor.shape:
        return f"the shape is {list(actual.shape)}, expected {list(tensor.shape)}", float("inf")
    a = as_numbers(np.ascontiguousarray(actual).reshape(-1)[:: tensor.step], dtype)
    b = as_numbers(expected, dtype)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.all(same | finite):
        return "an element is not finite but eager's is, or vice versa", float("inf")
    finite &= ~same
    difference = float(np.abs(a[finite] - b[finite]).max()) if finite.any() else 0.0
    scale = max(_scale(b), least)
    return None, difference / scale if scale else difference


def _scale(values: Array) -> float:
    """The greatest finite magnitude."""
    magnitudes = np.abs(values[np.isfinite(values)])
    return float(magnitudes.max()) if magnitudes.size else 0.0
