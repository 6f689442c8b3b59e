"""torch.compile with `max-autotune`: CUDA graphs, and products chosen by timing cuBLAS and Triton kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engines import gpu, gpu_compile_engine

TITLE = "max-autotune"
MODE = "max-autotune"
STARTS_TOGETHER = True
missing, to_numpy = gpu.missing, gpu.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    return gpu_compile_engine.warm(module, args, directory, MODE)


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    return gpu_compile_engine.compiled(artifact, inputs, MODE)
