"""Memory and time of building a model of several gigabytes.

    python -m bench.large                    4 GiB: 64 linear layers of 4096 x 4096 in fp32
    python -m bench.large --layers 16 -o build/bench/large.json

The weights are random and lie in a `.safetensors` file. Two builds, each in a fresh process: *streamed* captures the
model without its weights and reads them from the file while it packs; *freed* loads the model into memory first and
frees it while it packs (`free_source=True`). Peak memory is VmHWM from capture on, over the bytes of the weights.
"""

import argparse
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 4096


def write_weights(path: Path, layers: int) -> int:
    """Writes the state dict of the model, a layer at a time; returns the bytes of the weights."""
    import torch

    header, at = {}, 0
    for layer in range(layers):
        for name, shape in ((f"{layer}.weight", [WIDTH, WIDTH]), (f"{layer}.bias", [WIDTH])):
            nbytes = 4 * math.prod(shape)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + nbytes]}
            at += nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for layer in range(layers):
            torch.manual_seed(layer)
            for shape in ((WIDTH, WIDTH), (WIDTH,)):
                file.write(memoryview((torch.randn(shape) / math.sqrt(WIDTH)).numpy()))
    return at


def build(kind: str, weights: Path, layers: int, output: Path) -> None:
    """Builds the archive in this process and prints the report."""
    import contextlib

    import torch
    from torch import nn

    from aotpack.export import BuildOptions, aot_export, build_archive, without_weights

    streamed = kind == "streamed"
    with without_weights() if streamed else contextlib.nullcontext():
        model = nn.Sequential(
            *(
                nn.utils.skip_init(nn.Linear, WIDTH, WIDTH) if not streamed else nn.Linear(WIDTH, WIDTH)
                for _ in range(layers)
            )
        )
    if not streamed:
        from safetensors.torch import load_model

        load_model(model, weights)
        # What loading took is not the build's; VmHWM starts anew.
        Path("/proc/self/clear_refs").write_text("5")
        program = aot_export(model.eval(), (torch.randn(1, WIDTH),))
    else:
        program = aot_export(model.eval(), (torch.randn(1, WIDTH),), weights=weights)
    report = build_archive(program, output, options=BuildOptions(free_source=not streamed))
    print(json.dumps({"seconds": report.seconds, "size": report.size, "peak": _peak()}))


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def measure(kind: str, weights: Path, layers: int, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.large", "--child", kind, str(weights), str(folder / f"{kind}.aotpack")]
    result = subprocess.run([*command, "--layers", str(layers)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{kind} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "WEIGHTS", "OUTPUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, weights, output = options.child
        build(kind, Path(weights), options.layers, Path(output))
        return
    table = Table("build", "weights, GiB", "peak, GiB", "peak / weights", "phases, s", "archive / weights", box=None)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.safetensors"
        total = write_weights(weights, options.layers)
        for kind in ("streamed", "freed"):
            row = results[kind] = measure(kind, weights, options.layers, Path(folder)) | {"weights": total}
            (Path(folder) / f"{kind}.aotpack").unlink()
            phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in row["seconds"].items())
            gib = 1 << 30
            table.add_row(
                kind,
                f"{total / gib:.2f}",
                f"{row['peak'] / gib:.2f}",
                f"{row['peak'] / total:.2f}",
                phases,
                f"{row['size'] / total:.3f}",
            )
    Console().print(table)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
