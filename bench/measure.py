"""What bench.run measures of a model: builds, starts and calls of every engine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import engines
from bench.precision import TOLERANCES, precision_of
from bench.process import THIS, Checkout, Worker, WorkerError, build

Log = Callable[[str], None]
Results = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How long to measure. A round is one turn of every engine.

    Attributes:
        threads: of a call.
        starts: timed starts of each engine after a first one; with 0 the first one is timed.
        slow_start: seconds. An engine whose first start takes longer is started once.
        rounds, seconds, most_calls: of calls. A round has calls for so many seconds, and so many at most.
        tolerance: of results, relative to the greatest magnitude; that of the model's precision where it has one.
        jobs: builds at a time, and starts of engines whose start is not compared.
        build_limit: seconds after which a build is stopped; None for no limit.
        start_limit: the same for a start, and for each answer of a measured process.
        pythons: interpreters of engines that are not installed in this one.
        reuse: engines whose builds of an earlier run are measured where their folder has one.
    """

    threads: int = 2
    starts: int = 5
    slow_start: float = 5.0
    rounds: int = 10
    seconds: float = 1.0
    most_calls: int = 20_000
    tolerance: float = 1e-4
    jobs: int = 1
    build_limit: float | None = None
    start_limit: float | None = None
    pythons: Mapping[str, str] = field(default_factory=dict)
    reuse: tuple[str, ...] = ()


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Measurement:
    """One model's. `builds` begins first, `open_together` next, `measure` last."""

    def __init__(
        self,
        model: str,
        names: list[str],
        folder: Path,
        settings: Settings,
        log: Log,
        builds_of: Measurement | None = None,
    ) -> None:
        """`builds_of`: one of the same model and engines with another number of threads, whose builds this one uses."""
        self.model, self.names, self.folder, self.settings, self.log = model, names, folder, settings, log
        self.results: Results = {name: {} for name in names}
        self.built: Results = {}
        self._builds_of = builds_of
        self._processes: dict[str, Worker] = {}

    def builds(self, pool: Executor) -> dict[str, Future[None]]:
        """Starts the builds; a future for each engine, and one for eager's answers under the name `reference`.

        An engine's result is {"error": …} when it cannot build.
        """
        futures = {} if self._builds_of else {"reference": pool.submit(self._reference)}
        for name in self.names:
            if self._original(name) == name and not self._has_build(name):
                futures[name] = pool.submit(self._build, name)
        return futures

    def _original(self, name: str) -> str:
        """The engine whose artifact it runs."""
        other = getattr(engines.get(name), "SHARES_BUILD", name)
        return other if other in self.names else name

    def _has_build(self, name: str) -> bool:
        """Whether the build for another number of threads is good for this one."""
        return self._builds_of is not None and not getattr(engines.get(name), "THREADS_IN_BUILD", False)

    def _directory(self, name: str) -> Path:
        return self.folder / (f"{name}-{self.settings.threads}" if self._builds_of else name)

    def _checkout(self, name: str) -> Checkout:
        python = self.settings.pythons.get(name)
        return THIS if python is None else Checkout(THIS.root, Path(python))

    def _reference(self) -> None:
        if self.settings.reuse and (self.folder / "reference" / "expected.npy").exists():
            return
        try:
            build("reference", self.model, self.folder / "reference", self.settings.threads)
        except WorkerError as error:
            self.results = {name: {"error": f"no reference: {error}"} for name in self.names}

    def _build(self, name: str) -> None:
        result = self.results[name]
        if name not in self.settings.pythons and (reason := engines.get(name).missing()):
            result["error"] = reason
            return
        report = self._directory(name) / "build.json"
        kept = name in self.settings.reuse and report.exists()
        if not kept:
            try:
                result["build_process_s"] = build(
                    name, self.model, self._directory(name), self.settings.threads, limit=self.settings.build_limit,
                    jobs=self.settings.jobs, checkout=self._checkout(name),
                )  # fmt: skip
            except WorkerError as error:
                result["error"] = str(error)
                self.log(f"{self.model}: {name}: {_last_line(error)}")
                return
        made = json.loads(report.read_text())
        result |= {
            "artifact": made["artifact"],
            "build_s": made["seconds"],
            "build_phases_s": made["phases"],
            "bytes": made["bytes"],
        }
        self.log(f"{self.model}: {'kept, ' if kept else ''}built with {name} in {made['seconds']:.1f} s")

    def share_builds(self) -> None:
        """When all builds have ended: gives engines that use another's build its figures."""
        if self._builds_of is not None:
            without_reference = not (self.folder / "reference" / "expected.npy").exists()
            for name in self.names:
                if self._has_build(name) or without_reference:
                    self.results[name] = dict(self._builds_of.built[name])
        for name in self.names:
            if self._original(name) != name:
                self.results[name] = dict(self.results[self._original(name)])
        self.built = {name: dict(figures) for name, figures in self.results.items()}

    def open_together(self, pool: Executor) -> list[Future[None]]:
        """Starts engines whose start is not compared with others'."""
        names = [name for name in self._live() if getattr(engines.get(name), "STARTS_TOGETHER", False)]
        return [pool.submit(self._open, name) for name in names] if self.settings.jobs > 1 else []

    def measure(self) -> Results:
        """Engine -> the figures that bench.report shows."""
        try:
            for name in self._live():
                if name not in self._processes:
                    self._open(name)
            if self.settings.starts:
                self._time_starts()
            self._time_calls()
        finally:
            for process in self._processes.values():
                process.close()
        return self.results

    def _live(self) -> list[str]:
        return [name for name in self.names if "error" not in self.results[name]]

    def _worker(self, name: str) -> Worker:
        inputs = sorted(str(path) for path in (self.folder / "reference").glob("input_*.npy"))
        artifact, cache = self.results[name]["artifact"], self._directory(name) / "run-cache"
        limit, checkout = self.settings.start_limit, self._checkout(name)
        return Worker(name, artifact, inputs, self.settings.threads, cache, checkout, limit=limit)

    def _open(self, name: str) -> None:
        """A first start. It warms the page cache and the engine's own caches."""
        try:
            process = self._worker(name)
            self.results[name].update(start_s=process.start["first"], first_memory=process.ask("memory"))
            self._processes[name] = process
        except WorkerError as error:
            self.results[name] = {"error": str(error)}

    def _time_starts(self) -> None:
        slow = [name for name in self._live() if self.results[name]["start_s"] > self.settings.slow_start]
        for name in set(self._processes) - set(slow):
            self._processes.pop(name).close()
        starts: dict[str, list[float]] = {name: [] for name in self.names}
        for turn in range(self.settings.starts + 1):
            for name in self._live():
                if name in slow:
                    continue
                try:
                    process = self._worker(name)
                    if turn < self.settings.starts:
                        starts[name].append(process.start["first"])
                        self.results[name].update(first_memory=process.ask("memory"))
                        process.close()
                    else:
                        self._processes[name] = process
                except WorkerError as error:
                    self.results[name] = {"error": str(error)}
        for name in self._live():
            if name not in slow:
                self.results[name]["start_s"] = statistics.median(starts[name])

    def _time_calls(self) -> None:
        latencies: dict[str, list[int]] = {name: [] for name in self.names}
        rounds: dict[str, list[float]] = {name: [] for name in self.names}
        for turn in range(self.settings.rounds + 1):
            order = self._live()
            for name in order[turn % len(order) :] + order[: turn % len(order)] if order else []:
                seconds = self.settings.seconds if turn else 0.2
                try:
                    sample = self._processes[name].ask(f"run {seconds} {self.settings.most_calls}")["ns"]
                except WorkerError as error:
                    self.results[name] = {"error": str(error)}
                    continue
                if turn:  # the first round warms up
                    latencies[name] += sample
                    rounds[name].append(statistics.median(sample) / 1e9)
        for name in self._live():
            try:
                # Before the check, which makes copies of the results.
                memory = self._processes[name].ask("memory")
                check = self._processes[name].ask(f"check {self.folder / 'reference' / 'expected.npy'}")
            except WorkerError as error:
                self.results[name] = {"error": str(error)}
                continue
            self.results[name].update(
                max_error=check["error"],
                p50_s=quantile(latencies[name], 0.5) / 1e9,
                p90_s=quantile(latencies[name], 0.9) / 1e9,
                rounds_p50_s=rounds[name],
                calls=len(latencies[name]),
                tolerance=TOLERANCES.get(precision_of(self.model), self.settings.tolerance),
                peak_rss=memory["peak"],
                rss=memory["resident"],
            )
            self.results[name].pop("artifact")


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[-1]
