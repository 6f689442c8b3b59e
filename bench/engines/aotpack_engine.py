"""aotpack: an archive for the host's own target, as AOTInductor builds for it too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "aotpack"
PRECISIONS = ("fp32", "bf16", "int8", "w8", "w4")


def missing() -> str | None:
    return None if find_spec("aotpack") else "aotpack not installed"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    from aotpack.export import aot_export, build_archive, from_onnx

    path = directory / "model.aotpack"
    build_archive(from_onnx(module) if isinstance(module, Path) else aot_export(module, args), path)
    return path


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
