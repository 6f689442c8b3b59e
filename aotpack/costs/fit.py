"""A fit of the cost model to measurements of a processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fit:
    """What the terms of the model count for on a class of processors.

    Attributes:
        measured_on: the processor and the target.
        measurements: how many.
        coefficients: by term, at least 0.
    """

    measured_on: str
    measurements: int
    coefficients: Mapping[str, float]
