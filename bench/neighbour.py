"""Latency beside a busy neighbour: another process that computes without pause on one of the processors.

    python -m bench.neighbour --models mobilenetv2,gpt2 --threads 2
    python -m bench.neighbour --models mobilenetv2 --before ../before --keep build/neighbour

Every engine's process takes its turn alone and beside the neighbour, never two engines at once. The neighbour is bound
to the last processor, as a pinned service would be; with --free the system may move it. p50 and p99 are those of single
calls, over all turns. `--before` adds aotpack of another checkout, which builds with its own package. `--keep` keeps
the artifacts in a folder, and uses those that are there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import engines
from bench.measure import quantile
from bench.process import THIS, Checkout, Worker, WorkerError, build

ENGINES = ("aotpack", "onnxruntime", "openvino", "eager")
BEFORE = "before"

# A loop that touches no memory: it takes time from the other processes of its processor, but no bandwidth.
SPIN = "import os, sys\ncpus = set(map(int, sys.argv[1:]))\nif cpus: os.sched_setaffinity(0, cpus)\nwhile True: pass"


@contextlib.contextmanager
def busy_neighbour(free: bool) -> Iterator[None]:
    """A process that computes until the end of the block."""
    cpus = [] if free else [str(max(os.sched_getaffinity(0)))]
    process = subprocess.Popen([sys.executable, "-c", SPIN, *cpus])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def artifact_of(name: str, model: str, folder: Path, threads: int, checkout: Checkout) -> str:
    """The artifact in `folder`, which is built where it is not there."""
    if not (folder / "build.json").exists():
        build(name, model, folder, threads, checkout)
    return str(json.loads((folder / "build.json").read_text())["artifact"])


def open_workers(model: str, folder: Path, options: argparse.Namespace) -> dict[str, Worker]:
    """A process for each engine that has the model."""
    reference = folder / "reference"
    if not (reference / "expected.npy").exists():
        build("reference", model, reference, options.threads)
    inputs = sorted(str(path) for path in reference.glob("input_*.npy"))
    workers: dict[str, Worker] = {}
    for label in options.engines:
        name, checkout = ("aotpack", options.before) if label == BEFORE else (label, THIS)
        reason = engines.get(name).missing()
        if reason is None and engines.offers(name, model):
            try:
                artifact = artifact_of(name, model, folder / label, options.threads, checkout)
                workers[label] = Worker(name, artifact, inputs, options.threads, folder / label / "run", checkout)
            except WorkerError as error:
                reason = str(error).strip().splitlines()[-1]
        if reason is not None:
            print(f"{model}: {label}: {reason}", file=sys.stderr)
    return workers


def measure(workers: dict[str, Worker], options: argparse.Namespace) -> dict[str, dict[str, list[int]]]:
    """Nanoseconds of calls by engine, alone and beside the neighbour."""
    found: dict[str, dict[str, list[int]]] = {label: {"alone": [], "beside": []} for label in workers}
    for turn in range(options.rounds + 1):
        order = list(workers)
        for label in order[turn % len(order) :] + order[: turn % len(order)]:
            for where in ("alone", "beside"):
                with busy_neighbour(options.free) if where == "beside" else contextlib.nullcontext():
                    sample = workers[label].ask(f"run {options.seconds if turn else 0.2} 1000000")["ns"]
                if turn:  # the first round warms up
                    found[label][where] += sample
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbour", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="mobilenetv2,resnet50,bert,gpt2,mlp")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--before", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--free", action="store_true", help="the neighbour is not bound to a processor")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    if options.before is not None:
        options.before = Checkout.at(options.before)
        options.engines.insert(1, BEFORE)
    root = options.keep.resolve() if options.keep else Path(tempfile.mkdtemp(prefix="aotpack-neighbour-"))
    rows = []
    for model in options.models.split(","):
        workers = open_workers(model, root / model, options)
        try:
            found = measure(workers, options)
        finally:
            for worker in workers.values():
                worker.close()
        for label, times in found.items():
            row: dict[str, object] = {"model": model, "engine": label}
            for where, sample in times.items():
                for name, share in (("p50", 0.5), ("p99", 0.99)):
                    row[f"{where}_{name}_ms"] = round(quantile(sample, share) / 1e6, 4)
            rows.append(row)
            if not options.json:
                print("  ".join(f"{value:>12}" for value in (row.values())), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
