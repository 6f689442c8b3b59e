"""What the engines of PyTorch on a CUDA GPU share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def missing() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "torch has no CUDA device"


def arguments(inputs: list[str], dtype: Any) -> list[Any]:
    """The inputs on the GPU, floats in the model's dtype."""
    import numpy as np
    import torch

    found = [torch.from_numpy(np.load(path)) for path in inputs]
    return [x.to("cuda", dtype) if x.is_floating_point() else x.to("cuda") for x in found]


def waiting(function: Callable[..., Any], args: list[Any]) -> Callable[[], Any]:
    """A call that returns when its result is there."""
    import torch

    def call() -> Any:
        with torch.inference_mode():
            result = function(*args)
        torch.cuda.synchronize()
        return result

    return call


def to_numpy(result: Any) -> list[Any]:
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [output.float().cpu().numpy() for output in outputs]
