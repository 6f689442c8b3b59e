"""Measures the engines on the models, side by side.

    python -m bench.run                                 everything: takes an hour on a small machine
    python -m bench.run --quick --models mlp,resnet18   a look
    python -m bench.run --gpu                           on a CUDA GPU

For each model: every engine builds it in a fresh process with cold caches; then fresh processes load the artifact in
turns (start to first output, peak memory); then one process per engine stays and they run in turns, never two at once,
so that a disturbance of the machine meets them all. Every engine's output is compared with eager's.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import engines, report
from bench.process import Worker, WorkerError, build

# Names only: importing bench.models would import torch into the process that starts all others.
MODELS = [
    "resnet18", "resnet50", "mobilenetv2", "convnext", "vit", "bert", "gpt2", "minilm", "lstm", "dlrm", "mlp",
    "vgg16", "densenet121", "shufflenet", "mnasnet", "resnext50",
]  # fmt: skip
GPU_MODELS = [
    "mlp", "minilm-fp16", "bert-fp16", "bert-fp16-b32", "gpt2-bf16", "llama-bf16", "vit-fp16", "resnet50-fp16",
    "resnet50-fp16-b32", "lstm", "dlrm",
]  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How long to measure. A round is one turn of every engine."""

    threads: int = 2
    starts: int = 5
    rounds: int = 10
    seconds: float = 1.0
    most_calls: int = 20_000
    tolerance: float = 1e-4

    @classmethod
    def quick(cls, threads: int) -> "Settings":
        return cls(threads=threads, starts=2, rounds=3, seconds=0.3)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure_builds(model: str, names: list[str], folder: Path, settings: Settings, log: Console) -> dict[str, Any]:
    """Builds the model with every engine; an engine's result is {"error": …} when it cannot."""
    results: dict[str, Any] = {}
    for name in names:
        reason = engines.get(name).missing()
        if reason:
            results[name] = {"error": reason}
            continue
        shared = results.get(getattr(engines.get(name), "SHARES_BUILD", ""))
        if shared is not None:
            results[name] = dict(shared)
            continue
        log.print(f"[dim]{model}: building with {name}[/dim]")
        try:
            wall = build(name, model, folder / name, settings.threads)
        except WorkerError as error:
            results[name] = {"error": str(error)}
            continue
        made = json.loads((folder / name / "build.json").read_text())
        results[name] = {
            "artifact": made["artifact"],
            "build_s": made["seconds"],
            "build_process_s": wall,
            "bytes": made["bytes"],
        }
    return results


def measure_model(model: str, names: list[str], folder: Path, settings: Settings, log: Console) -> dict[str, Any]:
    """One model's results: engine -> the figures that bench.report shows."""
    build("reference", model, folder / "reference", settings.threads)
    inputs = sorted(str(path) for path in (folder / "reference").glob("input_*.npy"))
    expected = folder / "reference" / "expected.npy"
    results = measure_builds(model, names, folder, settings, log)

    def worker(name: str) -> Worker:
        return Worker(name, results[name]["artifact"], inputs, settings.threads, folder / name / "run-cache")

    def live() -> list[str]:
        return [name for name in names if "error" not in results[name]]

    log.print(f"[dim]{model}: starting[/dim]")
    starts: dict[str, list[float]] = {name: [] for name in names}
    # The first start of each engine warms the page cache and its own caches; it is checked for correctness, and timed
    # only where it is the one start.
    for turn in range(settings.starts + 1):
        for name in live():
            try:
                process = worker(name)
                if turn or not settings.starts:
                    starts[name].append(process.start["first"])
                    results[name].update(first_memory=process.ask("memory"))
                if not turn:
                    results[name]["max_error"] = process.ask(f"check {expected}")["error"]
                process.close()
            except WorkerError as error:
                results[name] = {"error": str(error)}

    log.print(f"[dim]{model}: running[/dim]")
    processes = {name: worker(name) for name in live()}
    latencies: dict[str, list[int]] = {name: [] for name in processes}
    rounds: dict[str, list[float]] = {name: [] for name in processes}
    try:
        for turn in range(settings.rounds + 1):
            order = list(processes)
            for name in order[turn % len(order) :] + order[: turn % len(order)] if order else []:
                sample = processes[name].ask(f"run {settings.seconds if turn else 0.2} {settings.most_calls}")["ns"]
                if turn:  # the first round warms up
                    latencies[name] += sample
                    rounds[name].append(statistics.median(sample) / 1e9)
        for name, process in processes.items():
            results[name].update(
                start_s=statistics.median(starts[name]),
                p50_s=quantile(latencies[name], 0.5) / 1e9,
                p90_s=quantile(latencies[name], 0.9) / 1e9,
                rounds_p50_s=rounds[name],
                calls=len(latencies[name]),
                peak_rss=process.ask("memory")["peak"],
            )
            results[name].pop("artifact")
    finally:
        for process in processes.values():
            process.close()
    return results


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = {}
    for package in ("torch", "onnxruntime", "aotpack", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0))
    return {"cpu": cpu, "cores": cores, "python": platform.python_version(), "versions": versions}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpu", action="store_true", help="models and engines on the CUDA GPU; calls wait for results")
    parser.add_argument("--models", help=f"comma-separated; default: all ({', '.join(MODELS)})")
    parser.add_argument("--engines", help=f"comma-separated; default: {', '.join(engines.ENGINES)}")
    parser.add_argument("--baseline", help="the engine that the ratios refer to (aoti; gpu_aoti)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a look, not a measurement")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/results.json"), help="%(default)s")
    parser.add_argument("--keep", type=Path, help="keep the artifacts in this folder (must not exist)")
    options = parser.parse_args(arguments)
    options.baseline = options.baseline or ("gpu_aoti" if options.gpu else "aoti")
    known_models, known_engines = (GPU_MODELS, engines.GPU_ENGINES) if options.gpu else (MODELS, engines.ENGINES)
    for kind, known in (("models", known_models), ("engines", known_engines)):
        chosen = getattr(options, kind)
        setattr(options, kind, chosen.split(",") if chosen else list(known))
        if unknown := sorted(set(getattr(options, kind)) - set(known)):
            parser.error(f"unknown {kind}: {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 1 when an engine failed or was wrong; 2 for wrong usage."""
    options = parse(arguments)
    settings = Settings.quick(options.threads) if options.quick else Settings(threads=options.threads)
    if options.gpu:
        # Of half precision. torch takes ten seconds to start with a GPU.
        settings = replace(settings, tolerance=3e-2, starts=0 if options.quick else 3)
    log = Console(stderr=True, highlight=False)
    document: dict[str, Any] = {"machine": machine(), "settings": asdict(settings), "models": {}}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="aotpack-bench-")) if options.keep is None else options.keep.resolve()
    try:
        for model in options.models:
            document["models"][model] = measure_model(model, options.engines, folder / model, settings, log)
            # After every model, so that an interrupted run leaves what it had.
            options.output.write_text(json.dumps(document, indent=1) + "\n")
            if options.keep is None:
                shutil.rmtree(folder / model)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    report.print_table(document, options.baseline)
    log.print(f"written: {options.output}")
    failures = report.failures(document)
    for failure in failures:
        log.print(f"[red]{failure}[/red]")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
