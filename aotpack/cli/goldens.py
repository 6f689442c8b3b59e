"""Goldens run on this machine, and compared with what eager PyTorch answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aotpack.archive import Golden, GoldenTensor
from aotpack.cli.arrays import Array, as_numbers, golden_array
from aotpack.runtime import Context
from aotpack.spec import DType, TensorSpec

if TYPE_CHECKING:
    from aotpack.runtime import Entry

# The bytes of a tensor of a golden.
Read = Callable[[GoldenTensor], bytes]


@dataclass(frozen=True)
class OutputResult:
    """One output of a golden.

    Attributes:
        output: its name.
        error: the greatest difference from eager's answer, relative to the greatest magnitude there.
        tolerance: the greatest error that is allowed.
        problem: what is wrong beyond numbers, e.g. the shape; None when nothing is.
    """

    output: str
    error: float
    tolerance: float
    problem: str | None

    @property
    def ok(self) -> bool:
        """Whether the output is eager's."""
        return self.problem is None and self.error <= self.tolerance


@dataclass(frozen=True)
class GoldenResult:
    """What a golden gave: the variant that ran, and a result for each output."""

    variant: str | None
    outputs: tuple[OutputResult, ...]


def run_golden(entry: Entry, golden: Golden, specs: tuple[TensorSpec, ...], read: Read) -> GoldenResult:
    """Calls the entry with a golden's inputs and compares the outputs, which `specs` describes, with eager's.

    Raises:
        AotpackError: the call fails.
    """
    # A context of its own: what an earlier call left in buffers that the model writes to does not matter.
    context = Context(entry, num_threads=entry.num_threads, seed=0)
    inputs = [golden_array(tensor, read).reshape(tensor.shape) for tensor in golden.inputs]
    outputs = context.run(inputs)
    results = []
    for spec, tensor, output in zip(specs, golden.outputs, outputs, strict=True):
        # Rounding is no excuse for an integer.
        tolerance = golden.tolerance if spec.dtype.is_floating or spec.dtype.is_complex else 0.0
        problem, error = _compare(output, golden_array(tensor, read), tensor, spec.dtype)
        results.append(OutputResult(spec.name, error, tolerance, problem))
    return GoldenResult(context.variant, tuple(results))


def _compare(output: object, expected: Array, tensor: GoldenTensor, dtype: DType) -> tuple[str | None, float]:
    """(what is wrong beyond numbers, error relative to the greatest expected magnitude)."""
    actual = np.asarray(output)
    if actual.shape != tensor.shape:
        return f"the shape is {list(actual.shape)} instead of {list(tensor.shape)}", float("inf")
    a = as_numbers(np.ascontiguousarray(actual).reshape(-1)[:: tensor.step], dtype)
    b = as_numbers(expected, dtype)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.all(same | finite):
        return "an element is not finite where eager's is, or the other way round", float("inf")
    finite &= ~same
    difference = float(np.abs(a[finite] - b[finite]).max()) if finite.any() else 0.0
    magnitudes = np.abs(b[np.isfinite(b)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    return None, difference / scale if scale else difference
