"""OpenVINO, with computations in the precision of the model. By itself it takes bf16 where the processor has it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

TITLE = "OpenVINO"
PRECISIONS = ("fp32", "bf16", "int8")


def missing() -> str | None:
    return None if find_spec("openvino") else "openvino not installed"


def build(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    import openvino
    import torch

    from bench.narrow import Narrow

    precision = "f32"
    if isinstance(module, Narrow):
        # Its users convert the fp32 model and set the precision at the load.
        module, precision = module.inside.float(), "bf16"
    if isinstance(module, Path):
        converted = openvino.convert_model(module)
    else:
        with torch.no_grad():
            converted = openvino.convert_model(torch.export.export(module, args))
    path = directory / "model.xml"
    openvino.save_model(converted, path, compress_to_fp16=False)
    path.with_suffix(".precision").write_text(precision)
    return path


def open_session(artifact: str, inputs: list[str], threads: int) -> Any:
    import numpy as np
    import openvino

    compiled = openvino.Core().compile_model(
        artifact,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": Path(artifact).with_suffix(".precision").read_text(),
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        },
    )
    args = [np.load(path) for path in inputs]
    request = compiled.create_infer_request()

    def call() -> Any:
        return request.infer(args, share_inputs=True, share_outputs=True)

    return call


def to_numpy(result: Any) -> list[Any]:
    return [value for _, value in result.items()]
