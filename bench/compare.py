"""Compares aotpack of two checkouts: build time, start, peak memory and latency, interleaved in one run.

    python -m bench.compare BEFORE AFTER --models mlp,resnet18

BEFORE and AFTER are checkouts with a virtual environment (`make setup` in each). Each builds, loads and runs the models
with its own package; the two take turns, and the order changes from turn to turn. The ratio of a figure is the median
over the turns of AFTER / BEFORE, so that slow drift of the machine cancels out.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.process import Checkout, Worker, build

ENGINE = "aotpack"
FIGURES = ("build_s", "start_s", "peak_rss", "p50_s")
TITLES = dict(zip(report.FIGURES, report.HEADINGS, strict=False))
# A selection of bench.run.MODELS: convolution, attention, recurrence and embedding, within a minute per build.
MODELS = ("mlp", "resnet18", "mobilenetv2", "minilm", "lstm", "dlrm")

Samples = dict[str, list[float]]


def in_turns(turns: int) -> list[tuple[int, int]]:
    """(turn, side) pairs: both sides in every turn, the other one first in every second turn."""
    return [(turn, side ^ (turn & 1)) for turn in range(turns) for side in (0, 1)]


def measure(model: str, sides: list[Checkout], folder: Path, options: argparse.Namespace) -> list[Samples]:
    """The figures of each side, one value per turn."""
    build("reference", model, folder / "reference", options.threads, sides[1])
    inputs = sorted(str(path) for path in (folder / "reference").glob("input_*.npy"))
    samples: list[Samples] = [{key: [] for key in FIGURES} for _ in sides]
    artifacts = ["", ""]
    for turn, side in in_turns(options.builds):
        directory = folder / f"{side}-{turn}"
        build(ENGINE, model, directory, options.threads, sides[side])
        made = json.loads((directory / "build.json").read_text())
        samples[side]["build_s"].append(made["seconds"])
        artifacts[side] = made["artifact"]

    def worker(side: int) -> Worker:
        return Worker(ENGINE, artifacts[side], inputs, options.threads, folder / f"run-{side}", sides[side])

    for turn, side in in_turns(options.starts + 1):
        process = worker(side)
        if turn:  # the first turn warms the page cache
            samples[side]["start_s"].append(process.start["first"])
            samples[side]["peak_rss"].append(process.ask("memory")["peak"])
        else:
            error = process.ask(f"check {folder / 'reference' / 'expected.npy'}")["error"]
            if not error <= options.tolerance:
                raise SystemExit(f"{model}: error {error:.1e} in {sides[side].root}")
        process.close()
    # Several pairs of processes: the addresses and the core that a process happens to get bias all its calls.
    for _ in range(options.processes):
        processes = [worker(0), worker(1)]
        try:
            for turn, side in in_turns(options.rounds + 1):
                latencies = processes[side].ask(f"run {options.seconds} 20000")["ns"]
                if turn:  # the first turn warms up
                    samples[side]["p50_s"].append(statistics.median(latencies) / 1e9)
        finally:
            for process in processes:
                process.close()
    return samples


def ratio(before: list[float], after: list[float]) -> float:
    return statistics.median(new / old for old, new in zip(before, after, strict=True))


def summarize(samples: list[Samples]) -> dict[str, dict[str, float]]:
    """figure -> {"before", "after", "ratio"}; medians over the turns."""
    return {
        key: {
            "before": statistics.median(samples[0][key]),
            "after": statistics.median(samples[1][key]),
            "ratio": ratio(samples[0][key], samples[1][key]),
        }
        for key in FIGURES
    }


def geometric_means(models: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """figure -> geometric mean of its ratios over the models."""
    return {
        key: math.exp(statistics.fmean(math.log(results[key]["ratio"]) for results in models.values()))
        for key in FIGURES
    }


def print_table(models: dict[str, dict[str, dict[str, float]]]) -> None:
    table = Table("model", *(f"{TITLES[key]}: before, after (ratio)" for key in FIGURES))
    for model, results in models.items():
        table.add_row(
            model,
            *(
                f"{results[key]['before'] * report.SCALES[key]:.4g}, {results[key]['after'] * report.SCALES[key]:.4g}"
                f" ({results[key]['ratio']:.3f})"
                for key in FIGURES
            ),
        )
    table.add_row("geometric mean", *(f"({mean:.3f})" for mean in geometric_means(models).values()))
    Console(width=160).print(table)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", type=Path, help="a checkout with its virtual environment in .venv")
    parser.add_argument("after", type=Path)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated (%(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--builds", type=int, default=3, help="builds of each model per side (%(default)s)")
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--processes", type=int, default=5, help="pairs of processes for the latency (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each pair of processes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a round (%(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest relative error (%(default)s)")
    parser.add_argument("--limit", type=float, help="exit with status 1 if a mean ratio is above this, e.g. 1.03")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/compare.json"), help="%(default)s")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    sides = [Checkout.at(options.before), Checkout.at(options.after)]
    log = Console(stderr=True, highlight=False)
    models: dict[str, Any] = {}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="aotpack-bench-"))
    try:
        for model in options.models.split(","):
            log.print(f"[dim]{model}[/dim]")
            models[model] = summarize(measure(model, sides, folder / model, options))
            options.output.write_text(json.dumps(models, indent=1) + "\n")
            shutil.rmtree(folder / model)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(models)
    slower = {key: mean for key, mean in geometric_means(models).items() if options.limit and mean > options.limit}
    for key, mean in slower.items():
        log.print(f"[red]{TITLES[key]}: {mean:.3f} times the figure before[/red]")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
