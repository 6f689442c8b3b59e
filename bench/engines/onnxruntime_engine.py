"""ONNX Runtime on a model from torch's ONNX exporter, weights in a file beside it so that they can be mapped."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "ONNX Runtime"
PRECISIONS = ("fp32", "int8")


def missing() -> str | None:
    absent = [name for name in ("onnxruntime", "onnxscript") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    path = directory / "model.onnx"
    if isinstance(module, Path):
        return Path(shutil.copy(module, path))
    import torch

    with torch.no_grad():
        torch.onnx.export(module, args, str(path), dynamo=True, external_data=True, verbose=False)
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(artifact, options, providers=["CPUExecutionProvider"])
    feeds = {slot.name: np.load(path) for slot, path in zip(session.get_inputs(), inputs, strict=True)}

    def call() -> Any:
        return session.run(None, feeds)

    return call


def to_numpy(result: Any) -> list[Any]:
    return list(result)
