"""Builds archives for GPUs, with the example calls and eager's answers as goldens.

    python -m tests.gpu.build_archives FOLDER [--target cuda-sm_90 ...] [--kernels FOLDER] [NAME ...]

Needs no GPU. On a host with one, `aotpack verify --device cuda:0` runs the goldens of each archive; elsewhere
`tests.support.interpreted_gpu.verify` does, with the kernels that `--kernels` records.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from aotpack.errors import AotpackError
from aotpack.export import aot_export, build_archive
from tests.gpu.architectures import architectures
from tests.gpu.cases import cases
from tests.gpu.control_flow import control_flow
from tests.gpu.host_steps import host_steps
from tests.gpu.joint import joint
from tests.gpu.large_products import large_products
from tests.gpu.special_functions import special_functions
from tests.gpu.user_kernels import user_kernels
from tests.gpu.ways import Way, ways
from tests.support.interpreted_gpu.recording import recorded_kernels


def main() -> int:
    """Builds what the command line asks for; 1 where a build fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", action="append")
    parser.add_argument("--kernels", type=Path)
    options = parser.parse_intermixed_args()
    with recorded_kernels(options.kernels) if options.kernels else contextlib.nullcontext():
        return build(options.folder, options.names, options.target)


def _all() -> dict[str, Way]:
    makes = {**cases(), **architectures(), **host_steps(), **joint(), **special_functions(), **user_kernels()}
    makes |= {**control_flow(), **large_products()}
    return {**{name: Way(make) for name, make in makes.items()}, **ways()}


def build(folder: Path, names: Sequence[str], targets: Sequence[str] | None) -> int:
    """Builds the archives of some names, all of them where none is given; 1 where a build fails."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, way in _all().items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        model, args, shapes = way.make()
        try:
            program = aot_export(model, args, dynamic_shapes=shapes, mode="joint" if name in joint() else "forward")
            all_targets = [*way.cpus, *(targets or ["cuda-sm_80", "cuda-sm_90"])]
            report = build_archive(program, folder / f"{name}.aotpack", targets=all_targets, options=way.options)
        except AotpackError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        steps = sum(len(steps) for variants in report.host_steps.values() for steps in variants.values())
        if steps and name in joint():
            failed += 1
            print(f"{name}: {steps} steps on the host", file=sys.stderr)
        print(f"{name}: {report.size} bytes in {sum(report.seconds.values()):.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
