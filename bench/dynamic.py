"""What dynamic sizes cost: BERT and MiniLM with any batch and length, against builds for one shape.

    python -m bench.dynamic                               both models at the shapes below, 40 random ones checked
    python -m bench.dynamic --models minilm --shapes 1x8,1x128 --json build/bench/dynamic.json
    python -m bench.dynamic --models bert --folder build/bench --build-only

For each model one archive is built with an entry `dynamic` (batch 1 to 64, length 1 to 512), an entry `variants` with
code for each shape, and an entry per shape that is captured with static sizes. They share the weights, so what differs
is code alone. The entries are called in turns, call by call, and the figures are ratios of medians: `dynamic` over
static (at most 1.1 is wanted), and a variant over static (at most 1.02). `--check` compares random shapes with eager.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from bench import models

MODELS = ("minilm", "bert")
SHAPES = ("1x8", "1x128", "8x32", "4x512")
MAX_BATCH, MAX_LENGTH = 64, 512
TOLERANCE = 1e-4

Shape = tuple[int, int]


def inputs(batch: int, length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, int64 [batch, length]; every row has a token at least."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    return ids, (torch.arange(length)[None] < lengths).long()


def build(name: str, shapes: list[Shape], path: Path) -> torch.nn.Module:
    """Writes the archive of a model unless it is there, and returns the model."""
    module, _ = models.build(name)
    if path.exists():
        return module
    axes = {0: aotpack.Dim("batch", 1, MAX_BATCH), 1: aotpack.Dim("length", 1, MAX_LENGTH)}
    dynamic: dict[str, Any] = {"dynamic_shapes": (axes, axes)}
    variants = [{"batch": batch, "length": length} for batch, length in shapes]
    programs = [
        aot_export(module, inputs(3, 24), entry="dynamic", **dynamic),
        aot_export(module, inputs(3, 24), entry="variants", variants=variants, **dynamic),
        *(aot_export(module, inputs(*shape), entry=static(shape)) for shape in shapes),
    ]
    build_archive(programs, path, name=name, options=BuildOptions(goldens=False))
    return module


def static(shape: Shape) -> str:
    """The name of the entry for one shape."""
    return f"static_{shape[0]}x{shape[1]}"


def medians(
    calls: dict[str, Callable[[], Any]], clock: Callable[[], float], *, seconds: float, least: int
) -> dict[str, float]:
    """The median seconds of each call, made in turns for a while, `least` times at least."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    until = time.perf_counter() + seconds
    order = list(calls)
    while time.perf_counter() < until or len(times[order[0]]) < least:
        for name in order:
            began = clock()
            calls[name]()
            times[name].append(clock() - began)
        # None is always the one that runs behind the same other.
        random.shuffle(order)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(
    path: Path, shapes: list[Shape], clock: Callable[[], float], *, threads: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Milliseconds and ratios by shape."""
    context = aotpack.load(path, num_threads=threads).context()
    result = {}
    for shape in shapes:
        ids, mask = inputs(*shape)
        entries = {kind: context.entry(kind) for kind in ("dynamic", "variants", static(shape))}
        calls = {kind: partial(entry, ids, mask) for kind, entry in entries.items()}
        for call in calls.values():
            call()
        found = medians(calls, clock, seconds=seconds, least=7)
        fixed = found[static(shape)]
        result[f"{shape[0]}x{shape[1]}"] = {
            "static_ms": fixed * 1e3,
            "dynamic_ms": found["dynamic"] * 1e3,
            "variant_ms": found["variants"] * 1e3,
            "dynamic": found["dynamic"] / fixed,
            "variant": found["variants"] / fixed,
        }
    return result


def check(path: Path, module: torch.nn.Module, count: int, *, threads: int, largest: int) -> float:
    """The greatest error at `count` random shapes, relative to the greatest magnitude of eager's answer.

    A shape has `largest` tokens at most.
    """
    entry = aotpack.load(path, num_threads=threads).context().entry("dynamic")
    generator = random.Random(0)
    worst = 0.0
    for seed in range(count):
        batch = round(MAX_BATCH ** generator.random())
        length = round(min(MAX_LENGTH, largest // batch) ** generator.random())
        given = inputs(batch, length, seed)
        with torch.inference_mode():
            expected = module(*given)
        error = (entry(*given) - expected).abs().max() / expected.abs().max()
        worst = max(worst, float(error))
        if not error <= TOLERANCE:
            raise SystemExit(f"{path.name}: wrong at {batch}x{length}: relative error {error:.2e}")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated, of bench.models")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="comma-separated, BATCHxLENGTH")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="per shape, for all three together")
    parser.add_argument(
        "--processor-time", action="store_true", help="instead of real time; for a busy machine and one thread"
    )
    parser.add_argument("--check", type=int, default=40, metavar="N", help="random shapes to compare with eager")
    parser.add_argument("--largest", type=int, default=8192, metavar="TOKENS", help="in one of these")
    parser.add_argument("--folder", type=Path, help="where archives are kept and used again; by default nowhere")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    shapes: list[Shape] = []
    for text in options.shapes.split(","):
        batch, length = map(int, text.split("x"))
        shapes.append((batch, length))
    console, results = Console(), {}
    table = Table("model", "shape", "static, ms", "dynamic, ms", "ratio", "variant, ms", "ratio", box=None)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.models.split(","):
            console.print(f"[dim]{name}[/dim]")
            path = folder / f"dynamic-{name}-{options.shapes.replace(',', '-')}.aotpack"
            module = build(name, shapes, path)
            if options.build_only:
                continue
            clock = time.process_time if options.processor_time else time.perf_counter
            rows = measure(path, shapes, clock, threads=options.threads, seconds=options.seconds)
            results[name] = {"shapes": rows}
            for shape, row in rows.items():
                cells = [f"{row['static_ms']:.2f}", f"{row['dynamic_ms']:.2f}", f"{row['dynamic']:.3f}"]
                table.add_row(name, shape, *cells, f"{row['variant_ms']:.2f}", f"{row['variant']:.3f}")
            if options.check:
                worst = check(path, module, options.check, threads=options.threads, largest=options.largest)
                results[name]["error"] = worst
                console.print(f"{name}: {options.check} random shapes, greatest error {worst:.1e}")
    if options.build_only:
        return
    console.print(table)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
