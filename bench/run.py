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
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import engines, report
from bench.measure import Measurement, Settings

# Names only: importing bench.models would import torch into the process that starts all others.
MODELS = [
    "resnet18", "resnet50", "mobilenetv2", "convnext", "vit", "bert", "gpt2", "minilm", "lstm", "dlrm", "mlp",
    "vgg16", "densenet121", "shufflenet", "mnasnet", "resnext50",
    "resnet50-b8", "whisper-encoder", "yolo", "llama1b-decode",
    "resnet50-bf16", "bert-bf16", "vit-bf16", "minilm-bf16", "llama1b-decode-bf16",
    "resnet50-int8", "mobilenetv2-int8", "llama1b-decode-w8", "llama1b-decode-w4",
]  # fmt: skip
GPU_MODELS = [
    "mlp", "minilm-fp16", "bert-fp16", "bert-fp16-b32", "gpt2-decode", "llama-decode", "gpt2-bf16", "llama-bf16",
    "vit-fp16", "resnet50-fp16", "resnet50-fp16-b32", "lstm", "dlrm", "whisper-fp16", "unet-fp16", "dropout",
]  # fmt: skip

PACKAGES = (
    "torch", "triton", "onnxruntime", "openvino", "llama-cpp-python", "aotpack", "numpy", "transformers",
)  # fmt: skip


def machine(gpu: bool) -> dict[str, Any]:
    """What the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0))
    found = {"cpu": cpu, "cores": cores, "python": platform.python_version(), "versions": versions}
    if gpu:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        try:
            found["gpu"] = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            found["gpu"] = "unknown GPU"
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpu", action="store_true", help="models and engines on the CUDA GPU; calls wait for results")
    parser.add_argument("--models", help=f"comma-separated; default: all ({', '.join(MODELS)})")
    parser.add_argument("--engines", help=f"comma-separated; default: {', '.join(engines.ENGINES)}")
    parser.add_argument("--without", default="", help="comma-separated MODEL:ENGINE that are not measured")
    parser.add_argument("--baseline", help="the engine that the ratios refer to (aoti; gpu_aoti)")
    parser.add_argument(
        "--threads", default="2", help="comma-separated numbers, `all` for every core; models are built once"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="ENGINE=PYTHON", help="the interpreter that has an engine"
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a look, not a measurement")
    parser.add_argument("--rounds", type=int, help="of calls")
    parser.add_argument("--starts", type=int, help="timed starts of an engine")
    parser.add_argument(
        "--jobs", type=int, default=1, help="builds at a time, all before anything is timed; build times are longer"
    )
    parser.add_argument("--build-limit", type=float, metavar="S", help="stop builds after so many seconds")
    parser.add_argument("--start-limit", type=float, metavar="S", help="stop an engine that does not answer")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/results.json"), help="%(default)s")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the artifacts in this folder")
    parser.add_argument(
        "--reuse", default="", metavar="ENGINES", help="measure what --keep FOLDER has of these engines, or of `all`"
    )
    options = parser.parse_args(arguments)
    options.baseline = options.baseline or ("gpu_aoti" if options.gpu else "aoti")
    usual_models, usual_engines = (GPU_MODELS, engines.GPU_ENGINES) if options.gpu else (MODELS, engines.ENGINES)
    named = (engines.GPU_PACKED,) if options.gpu else ()
    for kind, usual, known in (
        ("models", usual_models, usual_models),
        ("engines", usual_engines, (*usual_engines, *named)),
    ):
        chosen = getattr(options, kind)
        setattr(options, kind, chosen.split(",") if chosen else list(usual))
        if unknown := sorted(set(getattr(options, kind)) - set(known)):
            parser.error(f"unknown {kind}: {', '.join(unknown)}; there are {', '.join(known)}")
    options.reuse = tuple(options.engines if options.reuse == "all" else filter(None, options.reuse.split(",")))
    if unknown := sorted(set(options.reuse) - set(options.engines)):
        parser.error(f"--reuse {','.join(unknown)}: not among the measured engines {', '.join(options.engines)}")
    if options.reuse and options.keep is None:
        parser.error("--reuse needs the folder of an earlier run: --keep FOLDER")
    options.without = set(options.without.split(",")) - {""}
    cores = len(os.sched_getaffinity(0))
    try:
        counts = [cores if word == "all" else int(word) for word in options.threads.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        parser.error(f"--threads {options.threads}: expected numbers of at least 1, or all")
    # Once each, the greatest first: the builds are for it.
    options.threads = sorted(set(counts), reverse=True)
    pythons = [word.partition("=") for word in options.python]
    if not all(name in usual_engines and Path(path).is_file() for name, _, path in pythons):
        parser.error(f"--python {' '.join(options.python)}: expected ENGINE=PYTHON, an interpreter")
    options.python = {name: path for name, _, path in pythons}
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    settings = Settings(
        threads=options.threads[0],
        pythons=options.python,
        jobs=options.jobs,
        build_limit=options.build_limit,
        start_limit=options.start_limit,
        reuse=options.reuse,
    )
    if options.quick:
        settings = replace(settings, starts=2, rounds=3, seconds=0.3)
    if options.gpu:
        # Of half precision. torch takes ten seconds to start with a GPU.
        settings = replace(settings, tolerance=3e-2, starts=0 if options.quick else 3)
    chosen = {"rounds": options.rounds, "starts": options.starts}
    return replace(settings, **{name: value for name, value in chosen.items() if value is not None})


def measure_all(
    models: list[Measurement], settings: Settings, keep: bool, done: Callable[[Measurement, dict[str, Any]], None]
) -> None:
    """Measures the models one after another; `done` gets each and its results as soon as it is measured.

    With several jobs all models are built first, and engines start together in groups of models.
    """
    many = settings.jobs > 1
    with ThreadPoolExecutor(settings.jobs) as pool:
        futures = [m.builds(pool) for m in models] if many else []
        for wanted in futures:
            wait(wanted.values())
        count = max(1, settings.jobs // max(len(m.names) for m in models)) if many else 1
        for group in (models[i : i + count] for i in range(0, len(models), count)):
            for m in group:
                wait(() if many else m.builds(pool).values())
                m.share_builds()
            wait([future for m in group for future in m.open_together(pool)])
            for m in group:
                done(m, m.measure())
                if not keep and all(other.folder != m.folder for other in models[models.index(m) + 1 :]):
                    shutil.rmtree(m.folder, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 1 when an engine failed or was wrong; 2 for wrong usage."""
    options = parse(arguments)
    settings = settings_of(options)
    log = Console(stderr=True, highlight=False)
    document: dict[str, Any] = {
        "machine": machine(options.gpu),
        "date": date.today().isoformat(),
        "settings": asdict(settings),
        "models": {},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="aotpack-bench-")) if options.keep is None else options.keep.resolve()

    def done(measured: Measurement, results: dict[str, Any]) -> None:
        # After every model, so that an interrupted run leaves what it had.
        threads = measured.settings.threads
        row = report.row_name(measured.model, threads, settings.threads)
        document["models"][row] = results
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        for line in report.lines(row, results):
            print(line, flush=True)

    def measurements(model: str) -> list[Measurement]:
        """One for each number of threads."""
        names = [n for n in options.engines if f"{model}:{n}" not in options.without and engines.offers(n, model)]
        found: list[Measurement] = []
        for threads in options.threads if names else []:
            with_threads = replace(settings, threads=threads)
            first = found[0] if found else None
            found.append(Measurement(model, names, folder / model, with_threads, say, first))
        return found

    def say(text: str) -> None:
        log.print(f"[dim]{text}[/dim]")

    try:
        models = [measurement for model in options.models for measurement in measurements(model)]
        measure_all(models, settings, options.keep is not None, done)
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
