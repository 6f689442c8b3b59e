"""Builds archives for GPUs, with the example calls and eager's answers as goldens.

    python -m tests.gpu.build_archives FOLDER [--target cuda-sm_90 ...] [NAME ...]

Needs no GPU. On a host with one, `aotpack verify --device cuda:0` runs the goldens of each archive.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from aotpack.errors import AotpackError
from aotpack.export import aot_export, build_archive
from tests.gpu.architectures import architectures
from tests.gpu.cases import cases
from tests.gpu.host_steps import host_steps


def main() -> int:
    """Builds what the command line asks for; 1 where a build fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", action="append")
    options = parser.parse_intermixed_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, make in {**cases(), **architectures(), **host_steps()}.items():
        if options.names and name not in options.names:
            continue
        torch.manual_seed(0)
        model, args, shapes = make()
        try:
            program = aot_export(model, args, dynamic_shapes=shapes)
            report = build_archive(
                program, options.folder / f"{name}.aotpack", targets=options.target or ["cuda-sm_80", "cuda-sm_90"]
            )
        except AotpackError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {report.size} bytes in {sum(report.seconds.values()):.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
