"""What a call costs from Python when there is next to nothing to compute: the tiny MLP, engines in turns.

    python -m bench.overhead [--engines aoti,aotpack] [--threads 2] [-o overhead.json]

Microseconds a call, from loops without a clock between the calls; the median of the rounds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import engines
from bench.process import Worker, WorkerError, build

MODEL = "mlp"
ROUNDS = 15
CALLS = 2000


def measure(names: list[str], threads: int, folder: Path) -> dict[str, list[float]]:
    """Microseconds a call in every round, by engine."""
    build("reference", MODEL, folder / "reference", threads)
    inputs = sorted(str(path) for path in (folder / "reference").glob("input_*.npy"))
    workers: dict[str, Worker] = {}
    try:
        for name in names:
            build(name, MODEL, folder / name, threads)
            artifact = json.loads((folder / name / "build.json").read_text())["artifact"]
            workers[name] = Worker(name, artifact, inputs, threads, folder / name / "run-cache")
        samples: dict[str, list[float]] = {name: [] for name in workers}
        for turn in range(ROUNDS + 1):
            for name, worker in workers.items():
                nanoseconds = worker.ask(f"loop {CALLS}")["ns"]
                if turn:  # the first round warms up
                    samples[name].append(nanoseconds / CALLS / 1e3)
        return samples
    finally:
        for worker in workers.values():
            worker.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engines", default=",".join(engines.ENGINES))
    parser.add_argument("--baseline", default="aoti")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    names = [name for name in options.engines.split(",") if engines.get(name).missing() is None]
    with tempfile.TemporaryDirectory(prefix="aotpack-overhead-") as folder:
        try:
            samples = measure(names, options.threads, Path(folder))
        except WorkerError as error:
            print(error, file=sys.stderr)
            return 1
    medians = {name: statistics.median(values) for name, values in samples.items()}
    base = medians.get(options.baseline)
    table = Table("engine", title="Python call of the tiny MLP", highlight=False)
    for heading in ("µs a call", "fastest round", f"share of {options.baseline}"):
        table.add_column(heading, justify="right")
    for name, median in medians.items():
        share = f"{median / base:.2f}" if base else ""
        table.add_row(engines.get(name).TITLE, f"{median:.2f}", f"{min(samples[name]):.2f}", share)
    Console(highlight=False).print(table)
    if options.output:
        options.output.write_text(json.dumps({"us_per_call": samples}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
