"""Builds the code of the GPU's models without their weights, on a machine that has no GPU.

    python -m bench.codes FOLDER [--models mlp,llama-decode] [--target cuda-sm_90]

On one that has, `AOTPACK_BENCH_CODES=FOLDER python -m bench.run --gpu --engines gpu_packed,…` packs the weights into
them and measures the archives.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from bench import models


def build_code(name: str, target: str, path: Path) -> None:
    """Writes the code of one model."""
    from aotpack.export import BuildOptions, aot_export, build_archive

    module, args = models.build(name)
    build_archive(aot_export(module, args), path, targets=[target], options=BuildOptions(code_only=True))


def pack_code(code: Path, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Writes the archive of a code with a state dict, by the command line."""
    from safetensors.torch import save_file

    file = path.with_suffix(".safetensors")
    # Tied weights lie in the file once for each name.
    save_file({name: value.detach().clone() for name, value in weights.items()}, file)
    command = [sys.executable, "-m", "aotpack.cli.app", "pack", code, "--weights", file, "-o", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    file.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.codes", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", help=f"comma-separated; default: all ({', '.join(models.GPU_MODELS)})")
    parser.add_argument("--target", default="cuda-sm_90", help="default: %(default)s")
    options = parser.parse_args()
    names = options.models.split(",") if options.models else list(models.GPU_MODELS)
    if unknown := sorted(set(names) - set(models.GPU_MODELS)):
        parser.error(f"unknown models: {', '.join(unknown)}; there are {', '.join(models.GPU_MODELS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = options.folder / f"{name}.aotpack"
        if path.exists():
            continue
        began = time.perf_counter()
        build_code(name, options.target, path)
        print(f"{name}: {path.stat().st_size} bytes in {time.perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
