"""Build time of transformers of two depths with and without regions, and the latency of their archives.

python -m bench.regions [--model bert|gpt2] [--depths 6,48] [--hidden 256] [--tokens 64] [--runs 3] [--cold]

Each build runs in a new process, without the time of imports. Builds with and without regions and of both depths
alternate, and the shortest counts. The build cache has the kernels of this project, but nothing of the model; with
--cold it is empty. Calls of both archives alternate too, and must return the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import aotpack

KINDS = ("off", "auto")


def model_of(name: str, depth: int, hidden: int) -> Any:
    """A transformer with random weights."""
    import torch
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    torch.manual_seed(0)
    heads = hidden // 64
    if name == "gpt2":
        gpt2 = GPT2Config(n_embd=hidden, n_layer=depth, n_head=heads, vocab_size=1000, use_cache=False)
        return GPT2Model(gpt2).eval()
    bert = BertConfig(
        hidden_size=hidden,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=1000,
    )
    return BertModel(bert).eval()


def worker(options: argparse.Namespace) -> None:
    """One build; prints its seconds by phase as JSON."""
    import torch

    from aotpack.export import BuildOptions, aot_export, build_archive

    depth, kind, path, cache = options.worker
    model = model_of(options.model, int(depth), options.hidden)
    ids = torch.randint(0, 1000, (1, options.tokens))
    # What only the first capture and build of a process pay for is the same for all.
    small = aot_export(torch.nn.Linear(8, 8), (torch.randn(2, 8),))
    build_archive(small, f"{path}.small", options=BuildOptions(cache_dir=f"{cache}.small"))
    began = time.perf_counter()
    program = aot_export(model, (ids,))
    captured = time.perf_counter()
    report = build_archive(program, path, options=BuildOptions(cache_dir=cache, regions=kind))
    seconds = {"capture": captured - began, **report.seconds, "total": time.perf_counter() - began}
    print(json.dumps(seconds))


def built(options: argparse.Namespace, depth: int, kind: str, folder: Path) -> dict[str, float]:
    """The seconds of one build."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    if not options.cold:
        shutil.copytree(folder / "kernels", cache)
    arguments = [*sys.argv[1:], "--worker", str(depth), kind, str(archive_of(folder, depth, kind)), str(cache)]
    command = [sys.executable, "-m", "bench.regions", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def archive_of(folder: Path, depth: int, kind: str) -> Path:
    """Where an archive is."""
    return folder / f"{depth}-{kind}.aotpack"


def compare_calls(options: argparse.Namespace, depth: int, folder: Path) -> None:
    """Prints the latency of calls, in turns."""
    archives = {kind: aotpack.load(archive_of(folder, depth, kind), num_threads=2) for kind in KINDS}
    ids = np.random.default_rng(0).integers(0, 1000, (1, options.tokens))
    results = [[np.asarray(output) for output in archive.run([ids])] for archive in archives.values()]
    error = max(float(np.abs(a - b).max()) for a, b in zip(*results, strict=True))
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(options.calls):
        for kind in KINDS if turn % 2 else reversed(KINDS):
            began = time.perf_counter()
            archives[kind].run([ids])
            times[kind].append(time.perf_counter() - began)
    off, auto = (statistics.median(times[kind]) * 1e3 for kind in KINDS)
    shortest = [min(times[kind]) * 1e3 for kind in KINDS]
    print(
        f"{depth} blocks, a call: off {off:.3f} ms, auto {auto:.3f} ms, ratio {auto / off:.3f} "
        f"(shortest {shortest[1] / shortest[0]:.3f}), greatest difference {error:.2g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("bert", "gpt2"), default="bert")
    parser.add_argument("--depths", default="6,48", help="numbers of blocks (default: 6,48)")
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64 (default: 256)")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3, help="builds of each kind (default: 3)")
    parser.add_argument("--calls", type=int, default=200, help="calls of each archive (default: 200)")
    parser.add_argument("--cold", action="store_true", help="build with an empty cache")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options)
    depths = [int(depth) for depth in options.depths.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.cold:
            # Of another width, so that its generated kernels are others.
            prime = argparse.Namespace(**{**vars(options), "cold": True})
            sys.argv += ["--hidden", str(options.hidden + 64)]
            built(prime, 1, "off", folder)
            del sys.argv[-2:]
            (folder / "cache").rename(folder / "kernels")
        seconds: dict[tuple[int, str], dict[str, float]] = {}
        for _ in range(options.runs):
            for depth in depths:
                for kind in KINDS:
                    found = built(options, depth, kind, folder)
                    best = seconds.get((depth, kind))
                    if best is None or found["total"] < best["total"]:
                        seconds[depth, kind] = found
        for (depth, kind), phases in seconds.items():
            parts = ", ".join(f"{phase} {taken:.2f}" for phase, taken in phases.items() if phase != "total")
            print(f"{depth} blocks, regions {kind}: {phases['total']:.2f} s ({parts})")
        for kind in KINDS:
            few, many = seconds[depths[0], kind], seconds[depths[-1], kind]
            build = (many["total"] - many["capture"]) / (few["total"] - few["capture"])
            whole = many["total"] / few["total"]
            print(
                f"{depths[-1]} against {depths[0]} blocks, regions {kind}: build {build:.2f}, with capture {whole:.2f}"
            )
        for depth in depths:
            compare_calls(options, depth, folder)


if __name__ == "__main__":
    main()
