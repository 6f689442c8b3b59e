"""Measures the algorithms of convolutions on this machine, for the passes that choose them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from aotpack.archive.algorithms import MeasuredAlgorithms
from aotpack.building.cache import digest_of
from aotpack.building.native_sources import kernels_version
from aotpack.costs.costs import Costs, ModelCosts, Times, geometric_mean
from aotpack.costs.samples import is_busy, noise, quiet
from aotpack.costs.shapes import BlockShape, Shape
from aotpack.errors import CompileError, UnsupportedTargetError
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu.probe import Samples, probe_program, time_shapes
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import all_nodes
from aotpack.targets import Target
from aotpack.targets.host import host_processor

LATE = "what measures was not compiled in time; it is for the next build"
BUSY = "the machine is busy: calls vary too much to compare algorithms"
# Fewer calls say too little.
_LEAST_SAMPLES = 4
# Times that differ more between two halves of the calls say as little.
_MOST_NOISE = 0.15
# Of what is left, one question of a pass has this share: there may be more programs.
_SHARE = 0.8
# What was disturbed is measured again, as long as there is time: neighbours come and go.
_MOST_TRIALS = 3
# More weights than this are in memory, whatever the model has beyond.
_MOST_WEIGHTS = 256 << 20
_SUFFIX = ".algorithms.json"


@dataclass(frozen=True)
class _Found:
    """Seconds of a call by algorithm, and their noise."""

    seconds: Mapping[str, float]
    noise: float


@dataclass
class Algorithms(AbstractContextManager["Algorithms"]):
    """What a build measures of algorithms, for those of its targets that this machine runs.

    Attributes:
        tools: the cache, where results are kept, and the compiler.
        threads: numbers of threads of a call to measure with.
        seconds: to measure in; 0: nothing is measured.
        spent: seconds that measuring took so far, with what passes waited for.
        problem: why something was not measured; None otherwise.
    """

    tools: Tools
    threads: tuple[int, ...]
    seconds: float
    spent: float = 0.0
    problem: str | None = None
    _records: dict[tuple[Shape, str, int], _Found] = field(default_factory=dict)
    _chosen: dict[Shape, set[str]] = field(default_factory=dict)
    _programs: dict[str, Future[Path]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @property
    def measures(self) -> bool:
        """Whether anything may be measured."""
        return self.seconds > 0 and bool(host_processor())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # What is being compiled goes on, for the next build.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, programs: Iterable[Program], targets: Iterable[str]) -> None:
        """Compiles what measures in the background, if there is a convolution."""
        if not self.measures:
            return
        nodes = (node for program in programs for node in all_nodes(program.graph_module))
        if any(node.op == "call_function" and "conv" in str(node.target) for node in nodes):
            for target in self._run_here(targets):
                self._program(target)

    def costs(self, targets: Sequence[str]) -> Costs:
        """What the passes for these targets ask."""
        here = self._run_here(targets) if self.measures else []
        return _MeasuredCosts(self, tuple(targets), tuple(here)) if here else ModelCosts(targets)

    def records(self) -> list[MeasuredAlgorithms]:
        """What was measured, or known, and what was chosen."""
        return [
            MeasuredAlgorithms(
                shape.operator,
                shape.numbers,
                target,
                host_processor(),
                threads,
                {name: round(seconds * 1e9) for name, seconds in found.seconds.items()},
                tuple(sorted(self._chosen.get(shape, ()))),
            )
            for (shape, target, threads), found in self._records.items()
        ]

    def chose(self, shape: Shape, algorithm: str) -> None:
        """A pass has decided."""
        self._chosen.setdefault(shape, set()).add(algorithm)

    def measure(self, shapes: Sequence[Shape], target: str, weights: int) -> dict[Shape, list[_Found]]:
        """What is known, or now measured, of shapes: for each number of threads."""
        began = time.perf_counter()
        wanted = [shape for shape in shapes if not (isinstance(shape, BlockShape) and shape.itemsize != 4)]
        # What takes longest first: where there is no time for all, the least is lost.
        likely = dict(zip(wanted, ModelCosts([target]).times(wanted, weights=weights), strict=True))
        wanted.sort(key=lambda shape: -max(likely[shape].seconds.values()))
        found: dict[Shape, list[_Found]] = {}
        for threads in self.threads:
            known = {shape: each for shape in wanted if (each := self._known(shape, target, threads, weights))}
            missing = [shape for shape in wanted if shape not in known]
            if missing:
                until = began + (self.seconds - self.spent) * _SHARE
                known |= self._measured(missing, target, threads, weights, until)
            for shape, each in known.items():
                self._records[shape, target, threads] = each
                found.setdefault(shape, []).append(each)
        self.spent += time.perf_counter() - began
        # Means of different numbers of threads are not comparable.
        return {shape: each for shape, each in found.items() if len(each) == len(self.threads)}

    def _measured(
        self, shapes: Sequence[Shape], target: str, threads: int, weights: int, until: float
    ) -> dict[Shape, _Found]:
        found: dict[Shape, _Found] = {}
        disturbed: set[Shape] = set()
        for _ in range(_MOST_TRIALS):
            left = [shape for shape in shapes if shape in disturbed] or shapes
            for shape, samples in self._samples(left, target, threads, min(weights, _MOST_WEIGHTS), until).items():
                if (each := _reduced(samples, threads)) is None:
                    disturbed.add(shape)
                    continue
                disturbed.discard(shape)
                found[shape] = each
                self._keep(shape, target, threads, weights, each)
            if not disturbed:
                return found
        self.problem = BUSY
        return found

    def _samples(
        self, shapes: Sequence[Shape], target: str, threads: int, weights: int, until: float
    ) -> dict[Shape, Samples]:
        """Of those shapes for which there is time; none where something fails."""
        try:
            program = self._program(target).result(timeout=max(0.0, until - time.perf_counter()))
            # An equal share for each number of threads that is left.
            left = (until - time.perf_counter()) / (len(self.threads) - self.threads.index(threads))
            return time_shapes(program, shapes, threads=threads, seconds=left, weights=weights) if left > 0 else {}
        except FutureTimeoutError:
            self.problem = LATE
        except (CompileError, OSError, ValueError) as error:
            self.problem = str(error).partition("\n")[0]
        return {}

    def _program(self, target: str) -> Future[Path]:
        if target not in self._programs:
            self._programs[target] = self._pool.submit(probe_program, target, frozenset(), self.tools)
        return self._programs[target]

    def _run_here(self, targets: Iterable[str]) -> list[str]:
        try:
            host = Target.host()
        except UnsupportedTargetError:
            return []
        return [name for name in targets if Target(name).arch != "cuda" and Target(name).runs_on(host)]

    def _known(self, shape: Shape, target: str, threads: int, weights: int) -> _Found | None:
        path = self.tools.cache.find(_key(shape, target, threads, weights), _SUFFIX)
        if path is None:
            return None
        value = json.loads(path.read_text())
        return _Found({name: float(value["seconds"][name]) for name in shape.algorithms}, float(value["noise"]))

    def _keep(self, shape: Shape, target: str, threads: int, weights: int, found: _Found) -> None:
        text = json.dumps({"seconds": dict(found.seconds), "noise": found.noise})

        def write(path: Path) -> None:
            path.write_text(text)

        self.tools.cache.aside(_key(shape, target, threads, weights), _SUFFIX, write)


@dataclass(frozen=True)
class _MeasuredCosts:
    """Measurements for the targets `here`, and predictions for the others and for what was not measured."""

    algorithms: Algorithms
    targets: tuple[str, ...]
    here: tuple[str, ...]

    def times(self, shapes: Sequence[Shape], *, weights: int) -> list[Times]:
        found = {target: self.algorithms.measure(shapes, target, weights) for target in self.here} if shapes else {}
        by_target = {target: _seconds(target, shapes, found.get(target, {}), weights) for target in self.targets}
        predicted = ModelCosts(self.targets).times(shapes, weights=weights)
        return [
            Times(
                {name: geometric_mean(each[shape][name] for each in by_target.values()) for name in shape.algorithms},
                all(shape in found.get(target, {}) for target in self.targets),
                _mean([run.noise for each in found.values() for run in each.get(shape, ())]),
                model.seconds,
            )
            for shape, model in zip(shapes, predicted, strict=True)
        ]

    def chose(self, shape: Shape, algorithm: str) -> None:
        self.algorithms.chose(shape, algorithm)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _seconds(
    target: str, shapes: Sequence[Shape], found: Mapping[Shape, Sequence[_Found]], weights: int
) -> dict[Shape, dict[str, float]]:
    """By shape and algorithm. Predictions, beside measurements, are those for a processor as fast as this one."""
    predicted = dict(zip(shapes, ModelCosts([target]).times(shapes, weights=weights), strict=True))
    measured = {
        shape: {name: geometric_mean(run.seconds[name] for run in runs) for name in shape.algorithms}
        for shape, runs in found.items()
    }
    ratios = [each[name] / predicted[shape].seconds[name] for shape, each in measured.items() for name in each]
    scale = geometric_mean(ratios) if ratios else 1.0
    return {
        shape: measured.get(shape) or {name: scale * time for name, time in predicted[shape].seconds.items()}
        for shape in shapes
    }


def _reduced(samples: Samples, threads: int) -> _Found | None:
    """None where the machine did too much else."""
    if any(len(each) < _LEAST_SAMPLES for each in samples.values()):
        return None
    if threads > 1 and any(is_busy(each) for each in samples.values()):
        return None
    most = max(noise(each) for each in samples.values())
    return _Found({name: quiet(each) for name, each in samples.items()}, most) if most < _MOST_NOISE else None


def _key(shape: Shape, target: str, threads: int, weights: int) -> str:
    # Which cache weights come from hangs on their size.
    size = math.frexp(max(1, min(weights, _MOST_WEIGHTS)))[1]
    about = (shape.operator, *map(str, shape.numbers), target, host_processor(), str(threads), str(size))
    return digest_of(("algorithms 3", kernels_version(), *about))
