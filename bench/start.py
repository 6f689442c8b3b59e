"""From the start of a process to its first output, without Python and with it, against ONNX Runtime.

    python -m bench.start --models resnet50,bert --threads 2

New processes take turns, with all files in the page cache: a C++ program that embeds the runtime, Python with bytes and
with numpy arrays, and ONNX Runtime from Python. Medians, in milliseconds; of the C++ program also the parts, and a call
later on, which is what the first one would take without page faults.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.process import ROOT, Worker, build, environment

ENGINES = ("aotpack", "aotpack_bytes", "onnxruntime")
PARTS = ("exec", "load", "first", "later", "total")
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


def driver() -> Path:
    """Builds the C++ program in release mode."""
    folder = ROOT / "build" / "start"
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DAOTPACK_BUILD_BENCH=ON"]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(folder), *options], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        ["cmake", "--build", str(folder), "--target", "aotpack_start"], check=True, stdout=subprocess.DEVNULL
    )
    return folder / "bench" / "aotpack_start"


def raw_inputs(paths: list[Path], folder: Path) -> list[str]:
    """Inputs as the driver takes them: the files' elements without numpy's header."""
    given = []
    for path in paths:
        array = np.load(path)
        raw = folder / f"{path.stem}.raw"
        raw.write_bytes(array.tobytes())
        sizes = "x".join(map(str, array.shape))
        given.append(f"{CODES[array.dtype.kind]}:{8 * array.dtype.itemsize}:{sizes}:{raw}")
    return given


def from_cpp(program: Path, archive: Path, threads: int, inputs: list[str]) -> dict[str, float]:
    command = [program, archive, str(threads), str(time.monotonic_ns()), *inputs]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(threads, archive.parent))
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def from_python(engine: str, artifact: Path, threads: int, inputs: list[Path]) -> float:
    worker = Worker(engine, str(artifact), list(map(str, inputs)), threads, artifact.parent / "run")
    try:
        return worker.start["first"] * 1e3
    finally:
        worker.close()


def measured(model: str, threads: int, turns: int, folder: Path) -> dict[str, Any]:
    """Medians in milliseconds: `cpp` with its parts, and by engine the start."""
    artifacts = {}
    for engine in ENGINES:
        # Both of ours are the same archive.
        if engine == "aotpack_bytes":
            artifacts[engine] = artifacts["aotpack"]
            continue
        build(engine, model, folder / engine, threads)
        artifacts[engine] = Path(json.loads((folder / engine / "build.json").read_text())["artifact"])
    build("reference", model, folder / "reference", threads)
    inputs = sorted((folder / "reference").glob("input_*.npy"))
    raw = raw_inputs(inputs, folder)
    program = driver()
    cpp: list[dict[str, float]] = []
    starts: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(turns + 1):
        one = from_cpp(program, artifacts["aotpack"], threads, raw)
        others = {engine: from_python(engine, artifacts[engine], threads, inputs) for engine in ENGINES}
        if turn == 0:
            continue  # it brings files into the page cache and compiles Python's modules
        cpp.append(one)
        for engine, value in others.items():
            starts[engine].append(value)
    return {
        "cpp": {part: statistics.median(each[part] for each in cpp) for part in PARTS},
        **{engine: statistics.median(values) for engine, values in starts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="resnet50")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    table = Table("model", title=f"Milliseconds to the first output, {options.threads} threads", highlight=False)
    for heading in (
        "C++",
        "exec",
        "load",
        "first call",
        "later call",
        "bytes",
        "numpy",
        "ONNX Runtime",
        "of it: bytes",
        "numpy",
    ):
        table.add_column(heading, justify="right")
    figures = {}
    for model in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="aotpack-start-") as folder:
            found = figures[model] = measured(model, options.threads, options.turns, Path(folder))
        cpp, peer = found["cpp"], found["onnxruntime"]
        numbers = [cpp[part] for part in ("total", "exec", "load", "first", "later")]
        numbers += [found["aotpack_bytes"], found["aotpack"], peer]
        shares = [found["aotpack_bytes"] / peer, found["aotpack"] / peer]
        table.add_row(model, *(f"{value:.1f}" for value in numbers), *(f"{share:.2f}" for share in shares))
    Console(highlight=False, width=120).print(table)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
