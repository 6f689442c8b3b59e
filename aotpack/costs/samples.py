"""What times of the same work on a machine that does other things, too, say of the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

# The samples that count: other load only ever adds.
_QUIET = 0.3
# The median by the fastest: a machine on which calls of several threads vary as much is busy, and would show how well
# threads find a processor instead of how fast kernels are.
_MOST_NOISE = 1.35


def quiet(samples: Sequence[float]) -> float:
    """The mean of the least of the samples."""
    ordered = sorted(samples)
    kept = ordered[: max(1, math.ceil(_QUIET * len(ordered)))]
    return sum(kept) / len(kept)


def noise(samples: Sequence[float]) -> float:
    """How far the result differs between two halves of the samples, as a share."""
    halves = quiet(samples[::2]), quiet(samples[1::2])
    return abs(halves[0] - halves[1]) / min(halves) if len(samples) > 1 and min(halves) > 0 else 0.0


def is_busy(samples: Sequence[float]) -> bool:
    """Whether times of several threads vary too much to compare them with others."""
    return median(samples) > _MOST_NOISE * min(samples)
