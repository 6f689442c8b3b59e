"""PyTorch as it is: the module, saved whole and called under inference mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TITLE = "eager"
PRECISIONS = ("fp32", "bf16")


def missing() -> str | None:
    return None


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch

    path = directory / "model.pt"
    torch.save(module, path)
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    # The file is one that this bench wrote a moment ago; it holds a whole module, hence weights_only=False.
    module = torch.load(artifact, weights_only=False, mmap=True)
    args = [torch.from_numpy(np.load(path)) for path in inputs]

    def call() -> Any:
        with torch.inference_mode():
            return module(*args)

    return call


def to_numpy(result: Any) -> list[Any]:
    return [result.numpy()]
