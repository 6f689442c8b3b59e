"""What our passes are worth: each model with all of them and with none, in turns in one process.

    python -m bench.passes                              the vision models of the list below
    python -m bench.passes --models resnet50,vgg16 -o build/bench/passes.json

Both archives are built here from the same program and checked against eager in double precision. Then they run in
turns, so that a disturbance of the machine meets both; the figure is the ratio of the medians. `size` is the archive
without its example call over the bytes of the model's distinct weights plus those of the code.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.export import BuildOptions, aot_export, build_archive
from bench import models

MODELS = [
    "resnet50", "mobilenetv2", "convnext", "vgg16", "densenet121", "shufflenet", "mnasnet", "resnext50", "gpt2", "bert",
]  # fmt: skip


def distinct_bytes(module: torch.nn.Module) -> int:
    """Bytes of the model's parameters and floating buffers, tied ones once."""
    storages = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            storages[tensor.untyped_storage()._cdata] = tensor.numel() * tensor.element_size()
    return sum(storages.values())


def measure(name: str, folder: Path, *, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """One model's figures."""
    module, args = models.build(name)
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(*[a.double() if a.is_floating_point() else a for a in args])
    program = aot_export(module, args)
    result: dict[str, Any] = {}
    loaded = {}
    for kind, without in (("on", ()), ("off", ("all",))):
        path = folder / f"{name}-{kind}.aotpack"
        began = time.perf_counter()
        build_archive(program, path, name=name, options=BuildOptions(goldens=False, without=without))
        result[f"build_s_{kind}"] = time.perf_counter() - began
        loaded[kind] = aotpack.load(path, num_threads=threads)
        error = (loaded[kind](*args).double() - expected).abs().max() / expected.abs().max()
        result[f"error_{kind}"] = float(error)
    with ArchiveReader(folder / f"{name}-on.aotpack") as reader:
        code = sum(file.size for file in reader.manifest.files if file.path.startswith("modules/"))
        result["size"] = reader.size / (distinct_bytes(module) + code)
        result["bytes"] = reader.size
    times: dict[str, list[float]] = {kind: [] for kind in loaded}
    for _ in range(rounds):
        for kind, model in loaded.items():
            until = time.perf_counter() + seconds
            while time.perf_counter() < until or not times[kind]:
                began = time.perf_counter()
                model(*args)
                times[kind].append(time.perf_counter() - began)
    for kind, values in times.items():
        result[f"ms_{kind}"] = statistics.median(values) * 1e3
    result["ratio"] = result["ms_on"] / result["ms_off"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated names of bench.models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per round and archive")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    console = Console()
    table = Table("model", "passes on, ms", "off, ms", "ratio", "error", "size", "build on, s", "off, s", box=None)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            console.print(f"[dim]{name}[/dim]")
            row = measure(name, Path(folder), threads=options.threads, rounds=options.rounds, seconds=options.seconds)
            results[name] = row
            table.add_row(
                name,
                f"{row['ms_on']:.2f}",
                f"{row['ms_off']:.2f}",
                f"{row['ratio']:.2f}",
                f"{row['error_on']:.1e}",
                f"{row['size']:.3f}",
                f"{row['build_s_on']:.1f}",
                f"{row['build_s_off']:.1f}",
            )
            if options.output is not None:
                options.output.parent.mkdir(parents=True, exist_ok=True)
                options.output.write_text(json.dumps(results, indent=1))
    console.print(table)


if __name__ == "__main__":
    main()
