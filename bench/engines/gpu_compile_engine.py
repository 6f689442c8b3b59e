"""torch.compile with CUDA graphs (`reduce-overhead`). It compiles when it is first called: its start has the build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engines import gpu, gpu_eager_engine

TITLE = "torch.compile"
missing, to_numpy = gpu.missing, gpu.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    return gpu_eager_engine.build(module, args, directory)


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import torch

    module = torch.load(artifact, weights_only=False, mmap=True).to("cuda")
    compiled = torch.compile(module, mode="reduce-overhead")

    def run(*args: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*args)

    return gpu.waiting(run, gpu.arguments(inputs, next(module.parameters()).dtype))
