"""How near archives come to what the processor can do, by class of operators.

    python -m bench.roof --models resnet50,bert,vit --threads 2 -o build/bench/roof.json

First what the processor does at most with so many threads: multiplications and additions a second (fp32; bf16 and int8
where it has instructions for them), and bytes a second that it reads. Then for each model the time of each class of
operators, from an archive that is built with `profile`, beside the time that the roof allows: the greater of its
operations at the peak and its weights at the bandwidth. Operations are those of the definition; an algorithm that needs
fewer, such as Winograd's, may exceed the roof.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.precision import precision_of
from bench.process import ROOT, environment

SOURCE = Path(__file__).with_name("roof.cpp")
# In order: a kernel is of the first class of which it computes an operator.
CLASSES = {
    "convolution": ("convolution", "conv1d", "conv2d", "conv3d"),
    "attention": ("scaled_dot_product", "attention", "bmm", "baddbmm", "matmul"),
    "linear": ("linear", "addmm", "mm", "addmv", "mv"),
    "recurrent": ("lstm", "gru", "rnn_"),
    "normalization": ("layer_norm", "rms_norm", "batch_norm", "group_norm", "native_layer_norm"),
    "softmax": ("softmax", "_softmax"),
    "pooling": ("max_pool", "avg_pool", "mean"),
    "embedding": ("embedding", "embedding_bag"),
}
OTHER = "elementwise and copies"
# What torch's counter of operations calls them.
COUNTED = {"convolution": ("convolution",), "attention": ("bmm", "baddbmm"), "linear": ("mm", "addmm")}


def class_of(operators: Iterable[str]) -> str:
    """That of a kernel which computes these operators, such as aten.addmm."""
    names = [name.removeprefix("aten.").partition(".")[0] for name in operators]
    for kind, heads in CLASSES.items():
        if any(name == head or (len(head) > 4 and head in name) for name in names for head in heads):
            return kind
    return OTHER


def measured_roof(threads: int) -> dict[str, float]:
    """Operations a second by number format, 0 where the processor lacks it, and `reads`, bytes a second."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "roof"
        flags = ["-std=c++20", "-O2", "-march=native", "-fopenmp"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(program)], check=True)
        done = subprocess.run([str(program), str(threads)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def shares(
    kernels: Iterable[tuple[tuple[str, ...], float]], operations: dict[str, float], weights: dict[str, float],
    peak: float, reads: float,
) -> dict[str, dict[str, float | None]]:  # fmt: skip
    """By class, the longest first: `seconds`, `share` of the time of all kernels, and `roof`, the share of the roof.

    Args:
        kernels: operators and seconds of each.
        operations: by class.
        weights: bytes of the weights that a call reads, by class.
        peak, reads: operations and bytes a second.
    """
    seconds: dict[str, float] = {}
    for operators, time in kernels:
        kind = class_of(operators)
        seconds[kind] = seconds.get(kind, 0.0) + time
    total = sum(seconds.values())
    found: dict[str, dict[str, float | None]] = {}
    for kind, time in sorted(seconds.items(), key=lambda item: -item[1]):
        least = max(operations.get(kind, 0.0) / peak, weights.get(kind, 0.0) / reads)
        found[kind] = {"seconds": time, "share": time / total, "roof": least / time if least else None}
    return found


def work(module: Any, args: tuple[Any, ...]) -> tuple[dict[str, float], dict[str, float]]:
    """Operations by class, and bytes of the weights of linears."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from bench.quantized import QuantizedLinear

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        module(*args)
    counted = {str(op).rpartition(".")[2]: count for op, count in counter.get_flop_counts().get("Global", {}).items()}
    operations = {kind: float(sum(counted.get(name, 0) for name in names)) for kind, names in COUNTED.items()}
    linears = [part for part in module.modules() if isinstance(part, (torch.nn.Linear, QuantizedLinear))]
    tensors = {id(t): t for part in linears for t in part.state_dict(keep_vars=True).values()}
    return operations, {"linear": float(sum(t.numel() * t.element_size() for t in tensors.values()))}


def profiled(model: str, directory: Path, threads: int, roof: dict[str, float]) -> dict[str, Any]:
    """The shares of a model, whose archive is built in `directory`."""
    from aotpack.cli.profiling import profile
    from aotpack.export import BuildOptions, aot_export, build_archive, from_onnx
    from aotpack.runtime import load
    from bench import models
    from bench.int8 import write_int8

    module, args = models.build(model)
    operations, weights = work(module, args)
    precision = precision_of(model)
    if precision == "int8":
        program = from_onnx(write_int8(module, args, directory / "int8"))
        weights = {kind: size / 4 for kind, size in weights.items()}
    else:
        program = aot_export(module, args)
    path = directory / "model.aotpack"
    build_archive(program, path, options=BuildOptions(profile=True))
    result = profile(path, load(path), threads=threads)
    # Products with quantized weights compute with floats.
    peak = roof[precision] if roof.get(precision) else roof["fp32"]
    kernels = [(kernel.operators, kernel.seconds) for kernel in result.kernels]
    return {"seconds": result.seconds, "classes": shares(kernels, operations, weights, peak, roof["reads"])}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.roof", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="resnet50,mobilenetv2,bert,vit", help="comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/roof.json"), help="%(default)s")
    parser.add_argument("--one", type=Path, metavar="ROOF", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        # In a process of its own.
        with tempfile.TemporaryDirectory() as folder:
            roof = json.loads(options.one.read_text())["roof"]
            print(json.dumps(profiled(options.models, Path(folder), options.threads, roof)))
        return 0
    document: dict[str, Any] = {"threads": options.threads, "roof": measured_roof(options.threads), "models": {}}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    failed = False
    for model in options.models.split(","):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "bench.roof", "--models", model, "--threads", str(options.threads), "--one",
                 str(options.output.resolve())],
                cwd=ROOT, env=environment(options.threads, Path(cache)), capture_output=True, text=True,
            )  # fmt: skip
        if done.returncode:
            failed = True
            print(f"{model}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
            continue
        document["models"][model] = found = json.loads(done.stdout.splitlines()[-1])
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        for kind, row in found["classes"].items():
            roof = "" if row["roof"] is None else f"{row['roof']:.0%} of the roof"
            print(f"{model:20} {kind:24} {row['seconds'] * 1e3:9.3f} ms {row['share']:6.1%}  {roof}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
