"""aotpack on the GPU: an archive for the GPU's own target, called without torch in the process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.engines.aotpack_bytes_engine import read

TITLE = "aotpack"


def missing() -> str | None:
    return None if find_spec("aotpack") else "aotpack not installed"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import torch

    from aotpack.export import aot_export, build_archive

    path = directory / "model.aotpack"
    major, minor = torch.cuda.get_device_capability()
    build_archive(aot_export(module, args), path, targets=[f"cuda-sm_{major}{minor}"])
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import aotpack

    model = aotpack.load(artifact, device="cuda:0", num_threads=threads)
    args = [model.to_device(read(path)) for path in inputs]

    def call() -> Any:
        return model(*args)

    return call


def to_numpy(result: Any) -> list[Any]:
    import numpy as np

    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [_floats(np.asarray(output.numpy())) for output in outputs]


def _floats(array: Any) -> Any:
    """bfloat16 comes as its bits, which are the upper half of a float's."""
    import numpy as np

    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
