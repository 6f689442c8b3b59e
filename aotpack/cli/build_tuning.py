"""`aotpack build --tune`: tunes the finished archive for this machine, in a process of its own without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = f"import sys; sys.path.append({_PACKAGES!r}); from aotpack.cli.app import main; main()"

# Of the duration of the build: with what the process itself needs, a build takes less than 1.5 times as long.
_FAST_SHARE = 0.35
_FULL_SECONDS = 60.0


class Tune(StrEnum):
    """How much a build measures."""

    NONE = "none"
    FAST = "fast"
    FULL = "full"


def tune_built(archive: Path, how: str, build_seconds: float) -> dict[str, Any]:
    """Tunes an archive that has just been built: what `aotpack tune --json` prints, or `{"skipped": why}`.

    Args:
        archive: replaced by a rename, if something is written.
        how: `fast` or `full`.
        build_seconds: how long the build took.

    Raises:
        OSError: the process cannot be started.
    """
    seconds = max(0.1, _FAST_SHARE * build_seconds - 0.5) if how == Tune.FAST else max(_FULL_SECONDS, build_seconds)
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
