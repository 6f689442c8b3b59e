"""PyTorch on the GPU as it is: the module, saved whole and called under inference mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engines import gpu

TITLE = "eager"
STARTS_TOGETHER = True
missing, to_numpy = gpu.missing, gpu.to_numpy


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch

    path = directory / "model.pt"
    torch.save(module, path)
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import torch

    # The file is one that this bench wrote a moment ago; it holds a whole module, hence weights_only=False.
    module = torch.load(artifact, weights_only=False, mmap=True).to("cuda")
    return gpu.waiting(module, gpu.arguments(inputs, next(module.parameters()).dtype))
