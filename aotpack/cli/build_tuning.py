"""`aotpack build --tune`: has the build measure algorithms, and tunes the finished archive for this machine, in a
process of its own without torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from aotpack.archive.algorithms import MeasuredAlgorithms
    from aotpack.export.driver.report import AlgorithmReport

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = f"import sys; sys.path.append({_PACKAGES!r}); from aotpack.cli.app import main; main()"

# Of the duration of the build: with what the process itself needs, a build takes less than 1.5 times as long.
_FAST_SHARE = 0.35
_FULL_SECONDS = 60.0
# For algorithms, of the time of the capture, which is what is known of the build by then; and in seconds.
_ALGORITHMS_SHARE = 0.2
_LEAST_ALGORITHMS, _FULL_ALGORITHMS = 1.5, 20.0


class Tune(StrEnum):
    """How much a build measures."""

    NONE = "none"
    FAST = "fast"
    FULL = "full"


def algorithm_options(how: str, capture_seconds: float) -> dict[str, Any]:
    """The options of a build that say how it measures algorithms."""
    if how == Tune.NONE:
        return {}
    if how == Tune.FAST:
        return {"tune_seconds": max(_LEAST_ALGORITHMS, _ALGORITHMS_SHARE * capture_seconds)}
    from aotpack.cli.tune import parse_threads

    return {"tune_seconds": _FULL_ALGORITHMS, "tune_threads": parse_threads("all")}


def tune_built(archive: Path, how: str, build_seconds: float, algorithm_seconds: float = 0.0) -> dict[str, Any]:
    """Tunes an archive that has just been built: what `aotpack tune --json` prints, or `{"skipped": why}`.

    Args:
        archive: replaced by a rename, if something is written.
        how: `fast` or `full`.
        build_seconds: how long the build took without measurements.
        algorithm_seconds: how long it measured algorithms, which share the time that `fast` may take.

    Raises:
        OSError: the process cannot be started.
    """
    seconds = (
        max(0.1, _FAST_SHARE * build_seconds - 0.5 - algorithm_seconds)
        if how == Tune.FAST
        else max(_FULL_SECONDS, build_seconds)
    )
    options = ["--seconds", f"{seconds:.2f}", "--reuse", "--json"]
    if how == Tune.FULL:
        options += ["--threads", "all"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _START, "tune", os.fspath(archive.resolve()), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        check=False,
        text=True,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"skipped": f"the process ended with status {done.returncode}: {done.stderr.strip()[-300:]}"}
    return {"skipped": answer["error"]["message"]} if "error" in answer else answer


def print_algorithms(console: Console, report: AlgorithmReport) -> None:
    """Which algorithms were measured and chosen, in a line; none where there was nothing to measure."""
    if report.measured:
        console.print(f"measured: {algorithms_text(report.measured)}", soft_wrap=True)
    if report.problem:
        console.print(f"algorithms not measured: {report.problem}", soft_wrap=True)


def algorithms_text(measured: Sequence[MeasuredAlgorithms]) -> str:
    """How many shapes were measured, by operator and by what was chosen."""
    counts: dict[tuple[str, tuple[str, ...]], set[tuple[int, ...]]] = {}
    for each in measured:
        counts.setdefault((each.operator, each.chosen or ("not used",)), set()).add(each.numbers)
    return ", ".join(
        f"{len(sizes)} {operator} {'/'.join(names)}" for (operator, names), sizes in sorted(counts.items())
    )


def print_tuning(console: Console, tuning: Mapping[str, Any]) -> None:
    """What it did, in a line for each entry and number of threads."""
    if "skipped" in tuning:
        console.print(f"not tuned: {tuning['skipped']}", soft_wrap=True)
        return
    for result in tuning["results"]:
        about = f"{result['entry']}, {result['threads']} threads"
        if result["choices"]:
            found = f"{len(result['choices'])} of {result['sites']} kernels go another way"
            console.print(f"tuned ({about}): {found}", soft_wrap=True)
        elif result["problem"]:
            console.print(f"not tuned ({about}): {result['problem']}", soft_wrap=True)
        else:
            console.print(f"tuned ({about}): kernels go as they choose by themselves", soft_wrap=True)
