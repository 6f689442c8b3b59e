"""aotpack against ONNX Runtime, both from the same `.onnx` file: start, memory, latency.

    python -m bench.onnx [--models resnet50,bert] [--seconds 1] [--json FILE]

Files are made by torch's exporter (the networks), by ONNX Runtime's static quantization (the quantized ResNet-50, with
QuantizeLinear and DequantizeLinear around each operator, or of QLinearConv and its like) and by skl2onnx (the boosted
trees). An archive is built by `aotpack build FILE`, in a process and with a cache of its own. Then the two engines take
turns: fresh processes for the start, which is that to the first output, then rounds of calls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import models
from bench.int8 import quantize
from bench.process import ROOT, Worker, environment

Arrays = list[np.ndarray[Any, Any]]
ENGINES = ("onnxruntime", "aotpack")
_FILES = {"onnxruntime": "model.onnx", "aotpack": "model.aotpack"}
_WARM_UP = 0.3


# ---- models ---------------------------------------------------------------------------------------------------------


def _exported(name: str, path: Path, *, external: bool = True) -> Arrays:
    """A model of bench.models; whether its weights are in a file of their own."""
    import torch

    module, args = models.build(name)
    with torch.no_grad():
        torch.onnx.export(module, args, str(path), dynamo=True, external_data=external, verbose=False)
    return [arg.numpy() for arg in args]


def _quantized(name: str, path: Path, how: str) -> Arrays:
    """A convolution network in int8: weights per channel, activations by calibration with random images. `how` is the
    name of a format of ONNX Runtime: QDQ or QOperator.
    """
    plain = path.with_name("plain.onnx")
    # ONNX Runtime links to the file of weights while it prepares a model, and onnx reads no links.
    (image,) = _exported(name, plain, external=False)
    quantize(plain, path, [image], how)
    return [image]


def _boosted_trees(path: Path) -> Arrays:
    """300 trees with up to 32 leaves each, trained on 30 features; 256 rows in a call."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor

    generator = np.random.default_rng(0)
    x = generator.standard_normal((4000, 30)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + np.abs(x[:, 3:9]).sum(1)
    trees = GradientBoostingRegressor(n_estimators=300, max_depth=5, random_state=0).fit(x, y)
    path.write_bytes(to_onnx(trees, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}).SerializeToString())
    return [x[:256]]


MODELS: dict[str, Callable[[Path], Arrays]] = {
    "resnet50": lambda path: _exported("resnet50", path),
    "mobilenetv2": lambda path: _exported("mobilenetv2", path),
    "bert": lambda path: _exported("bert", path),
    "gpt2": lambda path: _exported("gpt2", path),
    "resnet50-int8": lambda path: _quantized("resnet50", path, "QDQ"),
    "resnet50-qlinear": lambda path: _quantized("resnet50", path, "QOperator"),
    "boosted-trees": _boosted_trees,
}


# ---- measuring ------------------------------------------------------------------------------------------------------


def _build_archive(folder: Path, threads: int) -> float:
    """Seconds."""
    command = [sys.executable, "-c", "from aotpack.cli.app import main; main()", "build"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, str(folder / _FILES["onnxruntime"]), "-o", str(folder / _FILES["aotpack"])],
        env=environment(threads, folder / "build-cache"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"aotpack build ends with {done.returncode}:\n{done.stderr[-3000:]}")
    return time.perf_counter() - start


def measure(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Figures by engine, and the greatest difference of the results relative to the greatest magnitude."""
    folder.mkdir()
    made = folder / _FILES["onnxruntime"]
    # In a process of its own: exporters leave memory and threads behind.
    subprocess.run([sys.executable, "-m", "bench.onnx", "--make", name, str(folder)], cwd=ROOT, check=True)
    inputs = sorted(str(path) for path in folder.glob("input_*.npy"))
    build_s = _build_archive(folder, options.threads)
    _expect(made, inputs, folder / "expected.npy")

    def worker(engine: str) -> Worker:
        return Worker(engine, str(folder / _FILES[engine]), inputs, options.threads, folder / f"run-{engine}")

    starts: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(options.starts + 1):
        for engine in ENGINES if turn % 2 else reversed(ENGINES):
            process = worker(engine)
            if turn:  # the first turn warms the page cache
                starts[engine].append(process.start["first"])
            process.close()
    processes = {engine: worker(engine) for engine in ENGINES}
    rounds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(options.rounds + 1):
        for engine in ENGINES if turn % 2 else reversed(ENGINES):
            seconds = options.seconds if turn else _WARM_UP
            sample = processes[engine].ask(f"run {seconds} 20000")["ns"]
            if turn:
                rounds[engine].append(statistics.median(sample) / 1e9)
    figures: dict[str, Any] = {"build_s": build_s}
    for engine, process in processes.items():
        memory = process.ask("memory")
        figures[engine] = {
            "start_s": statistics.median(starts[engine]),
            "p50_s": statistics.median(rounds[engine]),
            "rss": memory["resident"],
            "error": process.ask(f"check {folder / 'expected.npy'}")["error"],
        }
        process.close()
    # By round: what the machine does besides in one cancels out.
    pairs = zip(rounds["aotpack"], rounds["onnxruntime"], strict=True)
    figures["p50_ratio"] = statistics.median(ours / theirs for ours, theirs in pairs)
    return figures


def _expect(model: Path, inputs: list[str], path: Path) -> None:
    """ONNX Runtime's results without its optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [slot.name for slot in session.get_inputs()]
    np.save(path, session.run(None, dict(zip(names, map(np.load, inputs), strict=True)))[0])


def _make(name: str, folder: Path) -> None:
    for i, array in enumerate(MODELS[name](folder / _FILES["onnxruntime"])):
        np.save(folder / f"input_{i}.npy", array)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s")
    parser.add_argument("--starts", type=int, default=5, help="timed starts of each engine; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of calls; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls in a round; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures there")
    parser.add_argument("--make", nargs=2, metavar=("MODEL", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        _make(options.make[0], Path(options.make[1]))
        return 0
    names = options.models.split(",")
    if unknown := set(names) - MODELS.keys():
        parser.error(f"unknown models {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    results: dict[str, Any] = {}
    table = Table("model", "build s", "start s", "RSS MiB", "p50 ms", "p50 ratio", "differs by")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(f"{name}…", file=sys.stderr, flush=True)
            results[name] = figures = measure(name, Path(folder) / name, options)
            ours, theirs = figures["aotpack"], figures["onnxruntime"]
            table.add_row(
                name,
                f"{figures['build_s']:.1f}",
                f"{ours['start_s']:.3f} / {theirs['start_s']:.3f}",
                f"{ours['rss'] / 2**20:.0f} / {theirs['rss'] / 2**20:.0f}",
                f"{ours['p50_s'] * 1e3:.3f} / {theirs['p50_s'] * 1e3:.3f}",
                f"{figures['p50_ratio']:.2f}",
                f"{ours['error']:.1e} / {theirs['error']:.1e}",
            )
    Console(width=110).print(table)
    print("aotpack / ONNX Runtime; the results are compared with ONNX Runtime's without optimizations")
    if options.json:
        options.json.write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
