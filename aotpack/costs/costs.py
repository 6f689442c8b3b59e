"""What passes ask how long algorithms take: the model, or measurements where a build makes them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from aotpack.costs.model import predict
from aotpack.costs.processors import processors_of
from aotpack.costs.shapes import Shape

# Numbers of threads of which a prediction is the mean: services use one for each of many calls, or several for one.
_THREADS = (1, 4)

# Measured times that differ by less are as good as equal.
_EQUAL = 0.02


@dataclass(frozen=True, slots=True)
class Times:
    """How long the algorithms of a shape take.

    Attributes:
        seconds: by algorithm: the geometric mean over targets, processors and numbers of threads.
        measured: whether all are measured.
        noise: what times differ by that are as long, as a share.
        predicted: what the model says, where some are measured.
    """

    seconds: Mapping[str, float]
    measured: bool = False
    noise: float = 0.0
    predicted: Mapping[str, float] | None = None

    def gain(self, algorithm: str, over: str) -> float:
        """The share of the time of `over` that `algorithm` saves."""
        return 1.0 - self.seconds[algorithm] / self.seconds[over]

    def is_faster(self, algorithm: str, over: str, *, least: float) -> bool:
        """Whether `algorithm` saves at least the share `least` of the time of `over`. Measurements that do not tell the
        two apart leave that to the model: it knows the processor less, and what is around a call as little.
        """
        gain = self.gain(algorithm, over)
        if self.predicted is not None and abs(gain) < max(_EQUAL, 2 * self.noise):
            gain = 1.0 - self.predicted[algorithm] / self.predicted[over]
        return gain >= least

    def plus(self, other: Times) -> Times:
        """Of a call of each."""
        seconds = {name: time + other.seconds[name] for name, time in self.seconds.items()}
        predicted = None
        if self.predicted is not None and other.predicted is not None:
            predicted = {name: time + other.predicted[name] for name, time in self.predicted.items()}
        return Times(seconds, self.measured and other.measured, max(self.noise, other.noise), predicted)

    def describe(self, algorithm: str, over: str) -> str:
        """Both times, in words."""
        before, after = (f"{self.seconds[name] * 1e6:.0f}" for name in (over, algorithm))
        return f"{before} → {after} µs {'measured' if self.measured else 'predicted'}"


class Costs(Protocol):
    """Says how long algorithms take, and hears which ones were chosen."""

    def times(self, shapes: Sequence[Shape], *, weights: int) -> list[Times]:
        """The times of each shape, in a model whose weights have so many bytes together."""

    def chose(self, shape: Shape, algorithm: str) -> None:
        """A pass has chosen `algorithm` for a shape that it asked about."""


class ModelCosts:
    """Predictions for targets: the same on every machine."""

    def __init__(self, targets: Iterable[str]) -> None:
        self._processors = [each for target in targets for each in processors_of(target)]

    def times(self, shapes: Sequence[Shape], *, weights: int) -> list[Times]:
        return [Times({name: self._mean(shape, name, weights) for name in shape.algorithms}) for shape in shapes]

    def chose(self, shape: Shape, algorithm: str) -> None:
        pass

    def _mean(self, shape: Shape, algorithm: str, weights: int) -> float:
        return geometric_mean(
            predict(shape, algorithm, processor, threads, weights)
            for processor in self._processors
            for threads in _THREADS
        )


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive values: halves and doubles balance."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


_COSTS: ContextVar[Costs] = ContextVar("costs")


def current_costs() -> Costs:
    """What passes ask: of `using_costs`, or else predictions for x86-64-v4."""
    found = _COSTS.get(None)
    return ModelCosts(["x86-64-v4"]) if found is None else found


@contextlib.contextmanager
def using_costs(costs: Costs) -> Iterator[None]:
    """While active, passes ask `costs`."""
    token = _COSTS.set(costs)
    try:
        yield
    finally:
        _COSTS.reset(token)
