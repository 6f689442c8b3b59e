"""Cases of all operators are put into groups that share an archive; a group that fails is divided until a case is left.

Workers (worker.py) are processes; one that dies or takes too long has failed its task, and another takes its place.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.process import Process
from tests.conformance.task import (
    BUILD_ERROR,
    CRASH,
    FAILURES,
    OK,
    REFUSED,
    SKIPPED,
    TIMEOUT,
    TORCH_CANNOT,
    Ending,
    Outcome,
    Part,
    Platform,
    Record,
    Task,
)

# Cases of one archive. More save little: an archive costs about as much as ten cases.
_GROUP = 80
# Tasks that an operator and dtype may cost beyond its groups, to find the cases at fault.
_DIVISIONS = 24
# Seconds that a task may take, and that each of its cases adds.
_SECONDS, _SECONDS_OF_CASE = 240.0, 4.0

Name = tuple[str, str, int]


@dataclass
class Entry:
    """An operator in a dtype, with what is to be run of it."""

    op: str
    dtype: str
    samples: int
    cases: int
    chosen: tuple[int, ...]
    alone: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.op, self.dtype)


@dataclass
class _Progress:
    """What is known of an entry while it is run."""

    entry: Entry
    endings: dict[int, Ending] = field(default_factory=dict)
    divisions: int = 0
    seconds: float = 0.0
    stock: dict[str, str | None] = field(default_factory=dict)
    done: bool = False


class Worker(Process):
    """The process of a worker."""

    def __init__(self, cache: Path | None, platform: Platform) -> None:
        arguments = [str(cache or ""), platform.target, platform.device or "", platform.driver or ""]
        super().__init__("tests.conformance.worker", arguments)


class Schedule:
    """Runs entries and gives their records as they are complete."""

    def __init__(
        self,
        entries: Iterable[Entry],
        mode: str,
        *,
        jobs: int = 2,
        cache: Path | None = None,
        platform: Platform | None = None,
        worker: Any = None,
    ) -> None:
        self._mode = mode
        self._jobs = jobs
        self._make: Callable[[], Any] = worker or (lambda: Worker(cache, platform or Platform()))
        self._known: dict[tuple[str, str], _Progress] = {}
        # Those that are divided come first; groups are made when there is nothing else to do.
        self._tasks: list[Task] = []
        self._groups = self._grouped(entries)
        self._lock = threading.Condition()
        self._tried: list[Part] = []
        self._running = 0
        self._records: queue.Queue[Record | BaseException | None] = queue.Queue()
        self.seconds: Counter[str] = Counter()

    def records(self) -> Iterator[Record]:
        """The records, in the order in which they are complete."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._jobs)]
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            item = self._records.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item

    # ---- groups -----------------------------------------------------------------------------------------------------

    def _grouped(self, entries: Iterable[Entry]) -> Iterator[Task]:
        waiting: dict[str, list[Part]] = defaultdict(list)
        for entry in entries:
            self._known[entry.key] = _Progress(entry)
            self._finish(self._known[entry.key])
            for start in range(0, len(entry.chosen), _GROUP):
                part = Part(entry.op, entry.dtype, entry.chosen[start : start + _GROUP])
                if entry.alone or len(part.cases) == _GROUP:
                    yield Task((part,), self._mode)
                    continue
                parts = waiting[entry.dtype]
                if sum(len(p.cases) for p in parts) + len(part.cases) > _GROUP:
                    yield Task(tuple(parts), self._mode)
                    parts.clear()
                parts.append(part)
        for parts in waiting.values():
            if parts:
                yield Task(tuple(parts), self._mode)

    # ---- workers ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        worker = None
        try:
            while (task := self._next()) is not None:
                worker = worker or self._make()
                try:
                    if not self._do(worker, task) or worker.full():
                        worker.close()
                        worker = None
                finally:
                    with self._lock:
                        self._running -= 1
                        self._lock.notify_all()
        except BaseException as error:
            self._records.put(error)
        finally:
            if worker is not None:
                worker.close()
            self._records.put(None)

    def _next(self) -> Task | None:
        with self._lock:
            while not self._tasks:
                group = next(self._groups, None)
                if group is not None:
                    self._tasks.append(group)
                elif self._running:
                    self._lock.wait()
                elif self._tried:
                    self._join_tried()
                else:
                    return None
            self._running += 1
            return self._tasks.pop()

    def _do(self, worker: Any, task: Task) -> bool:
        """Runs a task; whether the worker can go on."""
        alive = True
        try:
            outcome = worker.ask("run", task, seconds=_SECONDS + _SECONDS_OF_CASE * task.size)
        except (EOFError, TimeoutError) as error:
            alive = False
            ending = (
                Ending(TIMEOUT, "takes too long")
                if isinstance(error, TimeoutError)
                else Ending(CRASH, "the process that builds crashes")
            )
            outcome = Outcome({}, ending)
        if alive and outcome.failure is not None:
            rest = _rest(task, outcome)
            if rest.size == 1:
                failure, alive = self._against_stock(worker, rest.parts[0], outcome.failure)
                outcome = Outcome(outcome.endings, failure, outcome.seconds)
        with self._lock:
            self._take(task, outcome)
        return alive

    def _against_stock(self, worker: Any, part: Part, failure: Ending) -> tuple[Ending, bool]:
        """A case that cannot be built is not ours to blame where torch cannot compile it either.

        Returns how it ended, and whether the worker can go on.
        """
        # What has no kernel, torch has generated code for.
        if failure.kind not in (REFUSED, BUILD_ERROR) or failure.operators:
            return failure, True
        alive = True
        known = self._known[part.key].stock
        if failure.text not in known:
            try:
                known[failure.text] = worker.ask("stock", part, self._mode, seconds=_SECONDS)
            except (EOFError, TimeoutError) as error:
                known[failure.text] = f"torch {'crashes' if isinstance(error, EOFError) else 'takes too long'}"
                alive = False
        return _blamed(failure, known), alive

    # ---- what tasks gave --------------------------------------------------------------------------------------------

    def _take(self, task: Task, outcome: Outcome) -> None:
        total = sum(outcome.seconds.values())
        self.seconds.update(outcome.seconds)
        for part in task.parts:
            self._known[part.key].seconds += total * len(part.cases) / max(task.size, 1)
        for (op, dtype, case), ending in outcome.endings.items():
            self._known[op, dtype].endings[case] = ending
        rest = _rest(task, outcome)
        if outcome.failure is not None:
            self._divide(rest, outcome.failure)
        elif task.probe:
            self._tried += rest.parts
            if sum(len(part.cases) for part in self._tried) >= _GROUP:
                self._join_tried()
        self._lock.notify_all()
        for part in task.parts:
            self._finish(self._known[part.key])

    def _divide(self, task: Task, failure: Ending) -> None:
        """Puts parts of a task that failed in its place; or ends what is left of it, when it is one case."""
        if not task.parts:
            return
        if len(task.parts) > 1:
            # Most parts are not at fault. Trying them costs less than an archive for each.
            probe = failure.kind in (REFUSED, BUILD_ERROR) and not task.probed
            self._tasks += [Task((part,), task.mode, probe=probe) for part in reversed(task.parts)]
            return
        part = task.parts[0]
        progress = self._known[part.key]
        progress.divisions += 1
        if len(part.cases) == 1 or progress.divisions > _DIVISIONS:
            progress.endings |= dict.fromkeys(part.cases, _blamed(failure, progress.stock))
            return
        middle = (len(part.cases) + 1) // 2
        halves = [part.cases[:middle], part.cases[middle:]]
        self._tasks += [Task((Part(*part.key, half),), task.mode, task.probe) for half in reversed(halves)]

    def _join_tried(self) -> None:
        """Puts what could be built alone into a group of its own."""
        self._tasks.append(Task(tuple(self._tried), self._mode, probed=True))
        self._tried = []

    def _finish(self, progress: _Progress) -> None:
        entry = progress.entry
        if len(progress.endings) == len(entry.chosen) and not progress.done:
            progress.done = True
            self._records.put(_record(progress, self._mode))


def _rest(task: Task, outcome: Outcome) -> Task:
    """What of a task has not ended."""
    left = [Part(p.op, p.dtype, tuple(c for c in p.cases if (*p.key, c) not in outcome.endings)) for p in task.parts]
    return Task(tuple(part for part in left if part.cases), task.mode, task.probe, task.probed)


def _blamed(failure: Ending, stock: dict[str, str | None]) -> Ending:
    """The failure, or that torch cannot do it either, as far as that was tried for such a failure."""
    reason = stock.get(failure.text)
    return failure if reason is None else _torch_cannot(reason)


def _torch_cannot(reason: str) -> Ending:
    line = next((line.strip() for line in reason.splitlines() if line.strip()), reason)
    return Ending(TORCH_CANNOT, line[:300])


def _record(progress: _Progress, mode: str) -> Record:
    entry, endings = progress.entry, progress.endings
    kinds = Counter(ending.kind for ending in endings.values())
    rules = Counter(ending.text for ending in endings.values() if ending.kind == OK)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for case, ending in sorted(endings.items()):
        if ending.kind != OK:
            groups[ending.kind, ending.text].append(case)
    order = [*FAILURES, REFUSED, TORCH_CANNOT, SKIPPED]
    reasons = [
        (kind, text, len(cases), cases[0])
        for (kind, text), cases in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[1][0]))
    ]
    operators = sorted({name for ending in endings.values() for name in ending.operators})
    return Record(
        op=entry.op,
        dtype=entry.dtype,
        mode=mode,
        samples=entry.samples,
        cases=entry.cases,
        chosen=len(entry.chosen),
        endings=dict(sorted(kinds.items())),
        rules=dict(sorted(rules.items())),
        reasons=reasons,
        operators=operators,
        seconds=round(progress.seconds, 2),
    )
