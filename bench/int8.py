"""The int8 forms of models, as ONNX Runtime's quantizer writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_int8(module: Any, args: tuple[Any, ...], directory: Path) -> Path:
    """Writes the int8 form of an fp32 module as directory/model.onnx, in the QDQ format; returns the path."""
    import torch

    directory.mkdir(parents=True)
    plain, path = directory / "plain.onnx", directory / "model.onnx"
    with torch.no_grad():
        # ONNX Runtime links to a file of weights while it prepares a model, and onnx reads no links.
        torch.onnx.export(module, args, str(plain), dynamo=True, external_data=False, verbose=False)
    quantize(plain, path, [arg.numpy() for arg in args])
    plain.unlink()
    return path


def quantize(plain: Path, path: Path, arrays: list[Any], how: str = "QDQ") -> None:
    """Writes an int8 form of the ONNX file `plain` to `path`, by ONNX Runtime's quantizer.

    Weights have a scale for each channel, activations one for all elements, from calls with random numbers in the place
    of the fp32 ones of `arrays`. `how` is the name of a format of ONNX Runtime: QDQ or QOperator.
    """
    import numpy as np
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = plain.with_name("prepared.onnx")
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    names = [slot.name for slot in onnx.load(prepared, load_external_data=False).graph.input]
    generator = np.random.default_rng(0)

    def call() -> dict[str, Any]:
        return {
            name: generator.standard_normal(array.shape, dtype=np.float32) if array.dtype == np.float32 else array
            for name, array in zip(names, arrays, strict=True)
        }

    class Calls(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter([call() for _ in range(4)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._left, None)

    quantization.quantize_static(
        str(prepared),
        str(path),
        Calls(),
        quant_format=quantization.QuantFormat[how],
        per_channel=True,
        weight_type=quantization.QuantType.QInt8,
        activation_type=quantization.QuantType.QUInt8,
    )
