"""aotpack: an archive for the host's own target, as AOTInductor builds for it too."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "aotpack"
PRECISIONS = ("fp32", "bf16", "int8", "w8", "w4")


def missing() -> str | None:
    return None if find_spec("aotpack") else "aotpack not installed"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    return timed_build(module, args, directory)[0]


def timed_build(module: Any, args: tuple[Any, ...], directory: Path) -> tuple[Path, dict[str, float]]:
    """The archive, and the seconds of each phase."""
    began = time.perf_counter()
    from aotpack.export import aot_export, build_archive

    if isinstance(module, Path):
        from aotpack.export import from_onnx

    imported = time.perf_counter()
    path = directory / "model.aotpack"
    program = from_onnx(module) if isinstance(module, Path) else aot_export(module, args)
    captured = time.perf_counter()
    report = build_archive(program, path)
    return path, {"import": imported - began, "capture": captured - imported, **report.seconds}


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np

    import aotpack

    context = aotpack.load(artifact).context(num_threads=threads)
    args = [np.load(path) for path in inputs]

    def call() -> Any:
        return context(*args)

    return call


def to_numpy(result: Any) -> list[Any]:
    import numpy as np

    if isinstance(result, dict):
        result = tuple(result.values())
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [np.asarray(output) for output in outputs]
