"""torch.compile with CUDA graphs (`reduce-overhead`). The build fills caches, with which it compiles at its start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.engines import gpu, gpu_eager_engine

TITLE = "torch.compile"
MODE = "reduce-overhead"
STARTS_TOGETHER = True
missing, to_numpy = gpu.missing, gpu.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    return warm(module, args, directory, MODE)


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    return compiled(artifact, inputs, MODE)


def warm(module: Any, args: tuple[Any, ...], directory: Path, mode: str) -> Path:
    """Saves the module and compiles it once; `directory` gets the caches, which `bench.process` places there."""
    path = gpu_eager_engine.build(module, args, directory)
    call = _compiled(module.to("cuda"), [arg.to("cuda") for arg in args], mode)
    for _ in range(3):
        call()
    return path


def compiled(artifact: str, inputs: list[str], mode: str) -> Any:
    """The module that `warm` saved, compiled with its caches."""
    # Before torch is imported, which reads it.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(artifact).parent / "build-cache" / "inductor")
    import torch

    module = torch.load(artifact, weights_only=False, mmap=True).to("cuda")
    return _compiled(module, gpu.arguments(inputs, next(module.parameters()).dtype), mode)


def _compiled(module: Any, args: list[Any], mode: str) -> Any:
    import torch

    function = torch.compile(module, mode=mode)
    first = True

    def run(*args: Any) -> Any:
        nonlocal first
        torch.compiler.cudagraph_mark_step_begin()
        result = function(*args)
        if first:
            # The worker keeps it for its comparison, and later calls overwrite the memory of a graph.
            first, result = False, torch.utils._pytree.tree_map(torch.clone, result)
        return result

    return gpu.waiting(run, args)
