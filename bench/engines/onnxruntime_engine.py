"""ONNX Runtime on a model from torch's ONNX exporter, weights in a file beside it so that they can be mapped."""

from __future__ import annotations

import shutil
import time
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


def timed_build(module: Any, args: tuple[Any, ...], directory: Path) -> tuple[Path, dict[str, float]]:
    """The model, and the seconds of the export and of the first session, which optimizes the graph."""
    began = time.perf_counter()
    path = build(module, args, directory)
    exported = time.perf_counter()
    session(str(path), threads=0)
    return path, {"export": exported - began, "session": time.perf_counter() - exported}


def session(artifact: str, threads: int) -> Any:
    """A session with so many threads; 0: as many as ONNX Runtime chooses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(artifact, options, providers=["CPUExecutionProvider"])


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np

    opened = session(artifact, threads)
    feeds = {slot.name: np.load(path) for slot, path in zip(opened.get_inputs(), inputs, strict=True)}

    def call() -> Any:
        return opened.run(None, feeds)

    return call


def to_numpy(result: Any) -> list[Any]:
    return list(result)
