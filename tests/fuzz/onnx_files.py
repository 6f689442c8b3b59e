"""`python -m tests.fuzz.onnx_files`: damaged ONNX files. Each is read, or refused with an error of aotpack's: no other
exception, no crash of the process, no hang, no memory without bounds.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from tests.fuzz.onnx_mutants import mutant

_BLOCK = 500
# Of one mutant.
_SECONDS = 20
_PATIENCE = 15
# What a process may take besides what it has when it begins.
_BYTES = 2 << 30
# Models beyond it are left out: what is large in them is data.
_LARGEST_MODEL = 20_000


@dataclass
class Report:
    """What became of mutants.

    Attributes:
        counts: how many were read, captured and refused.
        findings: by number of the mutant, what went wrong.
        slowest: seconds of the slowest mutant, and its number.
        peak: bytes of resident memory that a process took besides what it had.
    """

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    peak: int = 0

    def add(self, other: Report) -> None:
        self.counts += other.counts
        self.findings |= other.findings
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)


@lru_cache(maxsize=1)
def seeds() -> tuple[bytes, ...]:
    """Models that mutants are made from: small ones of onnx's backend test suite, at least one of every operator."""
    from tests.conformance.onnx_cases import cases

    chosen: list[bytes] = []
    seen: set[str] = set()
    for case in cases().values():
        new = set(case.operators) - seen
        if (new or case.kind != "node") and case.model.ByteSize() <= _LARGEST_MODEL:
            seen |= new
            chosen.append(case.model.SerializeToString())
    return tuple(chosen)


def data_of(seed: str, number: int) -> bytes:
    """The file of a mutant."""
    return mutant(seeds(), Random(f"{seed}-{number}"))


def judge(data: bytes, *, capture: bool) -> str:
    """What becomes of a file: `read`, `captured` or `refused`. Any exception is a finding."""
    from aotpack.errors import AotpackError
    from aotpack.export.onnx.importer import capture_onnx, load_onnx

    try:
        source = load_onnx(data)
    except AotpackError:
        return "refused"
    if not capture:
        return "read"
    try:
        capture_onnx(source)
    except AotpackError:
        return "refused in capture"
    return "captured"


def _run_block(seed: str, numbers: Iterable[int], every: int, current: mmap.mmap) -> Report:
    report = Report()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        current[:8] = struct.pack("q", number)
        data = data_of(seed, number)
        start = time.process_time()
        # Both end the process: code that is not Python's cannot be interrupted. The limit is of processor time, as
        # other work on the machine is no fault of the mutant; what waits for ever uses none.
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        signal.alarm(_PATIENCE * _SECONDS)
        try:
            report.counts[judge(data, capture=number % every == 0)] += 1
        except Exception as error:
            report.findings[number] = f"{type(error).__name__}: {str(error)[:200]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        report.slowest = max(report.slowest, (time.process_time() - start, number))
    report.peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return report


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _BYTES, now + _BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _in_a_fork(seed: str, numbers: Sequence[int], every: int) -> Report:
    """Runs mutants in a fork of this process, and in another one those behind a mutant that ends it."""
    total, left = Report(), list(numbers)
    current = mmap.mmap(-1, 8)
    while left:
        current[:8] = struct.pack("q", left[0])
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _limit_memory()
            if os.dup2(os.open(os.devnull, os.O_WRONLY), 2) < 0:
                os._exit(2)
            report = _run_block(seed, left, every, current)
            answer = [dict(report.counts), report.findings, report.slowest, report.peak]
            with os.fdopen(write_end, "w") as file:
                json.dump(answer, file)
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            counts, findings, slowest, peak = json.loads(text)
            findings = {int(number): what for number, what in findings.items()}
            total.add(Report(Counter(counts), findings, (slowest[0], slowest[1]), peak))
            break
        (number,) = struct.unpack("q", current[:8])
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        what = {
            0: f"ends with {status}",
            signal.SIGPROF: f"takes more than {_SECONDS} s",
            signal.SIGALRM: f"has no end after {_PATIENCE * _SECONDS} s",
        }
        total.findings[number] = what.get(ended, f"the process dies of {signal.Signals(ended or 1).name}")
        # Those before it are run again without it, to be counted.
        at = left.index(number)
        total.add(_in_a_fork(seed, left[:at], every) if at else Report())
        left = left[at + 1 :]
    return total


def _blocks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, _BLOCK):
        yield range(start, min(start + _BLOCK, first + count))


def run(seed: str, first: int, count: int, *, every: int = 100, progress: bool = False) -> Report:
    """Runs the mutants `first` to `first + count` of a seed; every so many are captured as well."""
    warnings.simplefilter("ignore")
    # Forks have them.
    judge(seeds()[0], capture=True)
    total, start = Report(), time.monotonic()
    for block in _blocks(first, count):
        report = _in_a_fork(seed, block, every)
        total.add(report)
        if progress:
            for number, what in sorted(report.findings.items()):
                print(f"--only {number}: {what}", file=sys.stderr, flush=True)
            done, seconds = block[-1] + 1 - first, time.monotonic() - start
            text = f"[{done}/{count} {seconds:.0f}s, {seconds / done * (count - done):.0f}s to go]"
            print(f"{text} {dict(total.counts)}, {len(total.findings)} findings", file=sys.stderr, flush=True)
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.onnx_files", description=__doc__)
    parser.add_argument("--mutants", type=int, default=100_000, help="how many; default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the number of the first; default: %(default)s")
    parser.add_argument("--seed", default="onnx", help="another text gives other mutants; default: %(default)s")
    parser.add_argument("--capture-every", type=int, default=100, help="captures every so many; default: %(default)s")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one mutant, in this process; errors are shown")
    options = parser.parse_args(arguments)
    if options.only is not None:
        print(judge(data_of(options.seed, options.only), capture=options.only % options.capture_every == 0))
        return 0
    report = run(options.seed, options.first, options.mutants, every=options.capture_every, progress=True)
    for number, what in sorted(report.findings.items()):
        print(f"--only {number}: {what}")
    ends = ", ".join(f"{name} {count}" for name, count in sorted(report.counts.items()))
    print(f"{options.mutants} mutants: {ends}; {len(report.findings)} findings")
    print(f"the slowest: {report.slowest[0]:.2f} s (--only {report.slowest[1]}); memory: {report.peak >> 20} MiB more")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
