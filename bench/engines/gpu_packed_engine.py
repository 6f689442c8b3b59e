"""aotpack on the GPU, with code that was built on a machine without one (bench.codes): weights are packed in here.

Its build is the packing. The environment variable AOTPACK_BENCH_CODES names the folder of the codes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.engines.gpu_aotpack_engine import open_session, to_numpy

__all__ = ["open_session", "to_numpy"]

TITLE = "aotpack, packed"


def missing() -> str | None:
    return None if os.environ.get("AOTPACK_BENCH_CODES") else "AOTPACK_BENCH_CODES names no folder of codes"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    from safetensors.torch import save_file

    # The folder of a build is MODEL/ENGINE.
    code = Path(os.environ["AOTPACK_BENCH_CODES"]) / f"{directory.parent.name}.aotpack"
    weights, path = directory / "model.safetensors", directory / "model.aotpack"
    # Tied weights lie in the file once for each name.
    save_file({name: value.detach().clone() for name, value in module.state_dict().items()}, weights)
    command = [sys.executable, "-m", "aotpack.cli.app", "pack", code, "--weights", weights, "-o", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    weights.unlink()
    return path
