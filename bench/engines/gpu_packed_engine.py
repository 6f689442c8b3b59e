"""aotpack on the GPU, with code that was built on a machine without one (bench.codes): weights are packed in here.

Its build is the packing. The environment variable AOTPACK_BENCH_CODES names the folder of the codes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.engines.gpu_aotpack_engine import open_session, to_numpy

__all__ = ["open_session", "to_numpy"]

TITLE = "aotpack, packed"


def missing() -> str | None:
    return None if os.environ.get("AOTPACK_BENCH_CODES") else "AOTPACK_BENCH_CODES names no folder of codes"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    from bench.codes import pack_code

    path = directory / "model.aotpack"
    # The folder of a build is MODEL/ENGINE.
    code = Path(os.environ["AOTPACK_BENCH_CODES"]) / f"{directory.parent.name}.aotpack"
    pack_code(code, module.state_dict(), path)
    return path
