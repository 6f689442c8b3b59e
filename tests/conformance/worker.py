"""The process that builds archives of cases and compares them with eager.

It answers tasks on stdin (tests/support/torchless.py has the way of messages). Archives run in another process, which
has no torch: tests/support/torchless_worker.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from aotpack.building.cache import BuildCache
from aotpack.building.compiler import find_compiler
from aotpack.errors import (
    AotpackError,
    CaptureError,
    DeviceError,
    UnsupportedOperatorError,
)
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.backends.backend import Tools
from aotpack.export.driver.backends import by_backend
from aotpack.export.driver.pipeline import select
from aotpack.export.ir.program import Program
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.runner import run_passes
from aotpack.export.tracing.autocast import no_autocast
from aotpack.targets import Target
from tests.conformance import stock
from tests.conformance.compare import Wrong
from tests.conformance.judge import eager, judge
from tests.conformance.program import Call, Joined, copies, observed
from tests.conformance.samples import Case, cases_of
from tests.conformance.samples import find as operator_of
from tests.conformance.task import (
    BACKWARD,
    BUILD_ERROR,
    CALL_ERROR,
    CRASH,
    OK,
    REFUSED,
    SKIPPED,
    WRONG,
    Ending,
    Outcome,
    Part,
    Platform,
    Task,
)
from tests.support.torchless import Torchless, receive, send

Name = tuple[str, str, int]

# What asking a process raises that has crashed.
_GONE = (EOFError, BrokenPipeError)


class Worker:
    """Builds and runs tasks, one at a time.

    `find` gives the operator of a name: an entry of the database, or something like one.
    """

    def __init__(
        self, folder: Path, find: Any = None, cache: Path | None = None, platform: Platform | None = None
    ) -> None:
        self._folder = folder
        self._platform = platform or Platform()
        self._cache = cache
        self._find = find or operator_of
        self._runner: Torchless | None = None
        self._cases = lru_cache(maxsize=64)(self._cases_of)

    def run(self, task: Task) -> Outcome:
        """Builds one archive of all cases of the task, runs it and compares; for a probe, it generates code alone."""
        clock = _Clock()
        endings: dict[Name, Ending] = {}
        calls: dict[Name, Call] = {}
        with clock.time("eager"):
            for part in task.parts:
                for name, call in self._calls(part, task.mode, endings):
                    calls[name] = call
        path = self._folder / f"{os.getpid()}.aotpack"
        while calls:
            try:
                self._build(list(calls.values()), path, clock, probe=task.probe)
                break
            except Exception as error:
                refused = _refused(error, list(calls))
                if not refused:
                    return Outcome(endings, _build_ending(error), clock.seconds)
                endings |= refused
                calls = {name: call for name, call in calls.items() if name not in refused}
        if task.probe or not calls:
            return Outcome(endings, None, clock.seconds)
        if not self._platform.runs:
            path.unlink(missing_ok=True)
            return Outcome(endings | dict.fromkeys(calls, Ending(OK, "built")), None, clock.seconds)
        try:
            with clock.time("run"):
                failure = self._compare(calls, path, endings)
        finally:
            path.unlink(missing_ok=True)
        return Outcome(endings, failure, clock.seconds)

    def stock(self, part: Part, mode: str) -> str | None:
        """Why torch itself cannot compile the only case of `part`; None when it can."""
        calls = [call for _, call in self._calls(part, mode, {})]
        if not calls:
            return None
        return stock.refusal(Joined(calls), copies(calls[0].inputs(calls[0].case.values[0])))

    def _calls(self, part: Part, mode: str, endings: dict[Name, Ending]) -> Iterator[tuple[Name, Call]]:
        op = self._find(part.op)
        cases = self._cases(part.op, part.dtype, mode)
        for index in part.cases:
            name = (*part.key, index)
            try:
                with torch.set_grad_enabled(mode == BACKWARD):
                    call = observed(op, cases[index], mode)
            except Exception as error:
                endings[name] = Ending(SKIPPED, f"eager fails: {_first_line(error)}")
                continue
            if call.results:
                yield name, call
            else:
                endings[name] = Ending(SKIPPED, "returns neither tensors nor numbers")

    def _cases_of(self, op: str, dtype: str, mode: str) -> list[Case]:
        return cases_of(self._find(op), dtype, backward=mode == BACKWARD)

    def _build(self, calls: list[Call], path: Path, clock: _Clock, *, probe: bool) -> None:
        tensors = [t.detach() for call in calls for t in copies(call.inputs(call.case.values[0]))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with clock.time("capture"):
                program = aot_export(Joined(calls), tensors)
            target = Target.parse(self._platform.target).name
            if probe:
                with clock.time("lower"), no_autocast():
                    _lower(program, target, self._cache)
                return
            # Results are compared here, by rules that goldens do not have.
            options = BuildOptions(check=False, goldens=False, jobs=1, cache_dir=self._cache)
            with self._kernels():
                report = build_archive(program, path, targets=[target], options=options)
        for phase, seconds in report.seconds.items():
            clock.add(phase, seconds)

    def _compare(self, calls: dict[Name, Call], path: Path, endings: dict[Name, Ending]) -> Ending | None:
        """Runs the archive with all values, and compares. Returns why it cannot be run."""
        rules: dict[Name, str] = {}
        sets = {name: self._usable(call) for name, call in calls.items()}
        try:
            options = {"device": self._platform.device} if self._platform.device else {}
            model = self._torchless().load(path, num_threads=2, **options).context(num_threads=2)
        except _GONE:
            return self._crashed("the process crashes as it loads the archive")
        except AotpackError as error:
            return self._failed(error, "loading: ")
        for turn in range(max(len(values) for values in sets.values())):
            inputs = {name: values[min(turn, len(values) - 1)] for name, values in sets.items()}
            flat = [t for values in inputs.values() for t in values]
            try:
                # Eager's state is put back after each call.
                model.method("reset")
                results = list(model(*[t.detach() for t in flat]))
            except _GONE:
                return self._crashed("the process crashes in the call")
            except (AotpackError, MemoryError) as error:
                return self._failed(error)
            for name, call in calls.items():
                found, results = results[: call.results], results[call.results :]
                if name in endings or (turn and turn >= len(sets[name])):
                    continue
                try:
                    rule = judge(call, name[0], inputs[name], found)
                except Wrong as error:
                    endings[name] = Ending(WRONG, str(error))
                else:
                    if rules.get(name, "tolerance") == "tolerance":
                        rules[name] = rule
        for name in calls:
            endings.setdefault(name, Ending(OK, rules.get(name, "tolerance")))
        return None

    def _usable(self, call: Call) -> list[list[torch.Tensor]]:
        """The inputs of the first values, and of all others for which eager has an answer."""
        usable = [call.inputs(call.case.values[0])]
        for values in call.case.values[1:]:
            try:
                inputs = call.inputs(values)
                eager(call, inputs)
            except Exception:
                continue
            usable.append(inputs)
        return usable

    def _torchless(self) -> Torchless:
        if self._runner is None:
            driver = self._platform.driver
            interpreted = ("tests.support.interpreted_gpu.worker", driver, str(self._recorded)) if driver else ()
            self._runner = Torchless({"OMP_WAIT_POLICY": "passive"}, interpreted)
        return self._runner

    @property
    def _recorded(self) -> Path:
        return self._folder / "kernels"

    def _kernels(self) -> contextlib.AbstractContextManager[None]:
        if self._platform.driver is None:
            return contextlib.nullcontext()
        from tests.support.interpreted_gpu.recording import recorded_kernels

        return recorded_kernels(self._recorded)

    def _failed(self, error: Exception, when: str = "") -> Ending:
        """Of a call. A process that has met a fault on its device cannot use it again: the next task gets another."""
        if isinstance(error, DeviceError):
            self._stop()
        return Ending(CALL_ERROR, when + _first_line(error))

    def _crashed(self, text: str) -> Ending:
        self._stop()
        return Ending(CRASH, text)

    def _stop(self) -> None:
        assert self._runner is not None
        with contextlib.suppress(OSError):
            self._runner.close()
        self._runner = None


def _lower(program: Program, target: str, cache: Path | None) -> None:
    """Generates code, and no more."""
    ((backend, targets),) = by_backend([target])
    program = run_passes(run_passes(program, select((), COMMON)), select((), backend.passes))
    with backend.compile_ahead(program, targets, Tools(BuildCache(cache), find_compiler(), 1)):
        backend.lower(program, target, weights_known=True)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - start)


def _refused(error: Exception, names: Sequence[Name]) -> dict[Name, Ending]:
    """The cases that an error names, each with the operators that it lacks; none where the error does not say."""
    found: dict[Name, set[str]] = {}
    for use in getattr(error, "uses", ()):
        match = re.search(r"\bcall(\d+)\b", use.module)
        if match is None:
            return {}
        found.setdefault(names[int(match[1])], set()).add(use.operator)
    return {name: _no_kernel(sorted(operators)) for name, operators in found.items()}


def _no_kernel(operators: Sequence[str]) -> Ending:
    return Ending(REFUSED, "no kernel: " + ", ".join(operators), tuple(operators))


def _build_ending(error: Exception) -> Ending:
    """A clean refusal, or an error of the build that is none."""
    if isinstance(error, UnsupportedOperatorError):
        return _no_kernel(error.operators)
    text = f"{type(error).__name__}: {_first_line(error)}"
    return Ending(REFUSED if type(error) is CaptureError else BUILD_ERROR, text)


def _first_line(error: Exception) -> str:
    """The message's first line, without what differs from run to run."""
    text = str(error).strip() or type(error).__name__
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if line.endswith(":") and len(text.splitlines()) > 1:
        line += " " + text.splitlines()[1].strip()
    return re.sub(r"0x[0-9a-f]+|/\S+/", "…", line)[:300]


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    cache, target, device, driver = sys.argv[1:]
    platform = Platform(target, device or None, driver or None)
    with tempfile.TemporaryDirectory(prefix="aotpack-conformance-") as folder:
        worker = Worker(Path(folder), cache=Path(cache) if cache else None, platform=platform)
        while True:
            try:
                command, arguments = receive(requests)
            except EOFError:
                return
            send(answers, getattr(worker, command)(*arguments))


if __name__ == "__main__":
    main()
