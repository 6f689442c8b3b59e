"""Archives of quantized depthwise-separable networks answer as ONNX Runtime does by floats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotpack.export import build_archive, from_onnx
from aotpack.runtime import load
from tests.export.onnx.quantized_models import Net, example

onnxruntime = pytest.importorskip("onnxruntime")

STEP = 0.08


@dataclass(frozen=True)
class Layer:
    """A depthwise convolution behind a pointwise one of `channels` outputs; pads as ONNX has them."""

    channels: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    relu: bool = True
    per_channel: bool = True


LAYERS = (
    Layer(96),
    Layer(144, strides=(2, 2), pads=(0, 0, 1, 1)),
    Layer(67, pads=(2, 0, 1, 3), relu=False),
    Layer(16, strides=(1, 2), per_channel=False),
    Layer(5),
    Layer(40, kernel=(5, 5), strides=(2, 1), pads=(2, 2, 2, 2)),
    Layer(31, dilations=(2, 2), pads=(2, 2, 2, 2)),
    Layer(64, kernel=(1, 3), pads=(0, 2, 0, 2), relu=False),
    Layer(48, kernel=(4, 2), pads=(0, 0, 0, 0)),
    Layer(128, kernel=(7, 7), pads=(3, 3, 3, 3), relu=False, per_channel=False),
)


def network(dtype: Any) -> Any:
    """Every layer on the same input, each followed by a pointwise one with a residual where the sizes allow it."""
    net = Net("batch", 6, 13, 11, dtype=dtype)
    x = net.quantized("x")
    outputs = []
    for layer in LAYERS:
        axis = 0 if layer.per_channel else None
        y = net.node("Conv", x, net.weight(layer.channels, 6, 1, 1, axis=axis), net.bias(layer.channels))
        y = net.node("Clip", y, net.constant(np.float32(0)), net.constant(np.float32(6)))
        y = net.quantized(y, 6 / 255, -128 if dtype == np.int8 else 0)
        weight = net.weight(layer.channels, 1, *layer.kernel, axis=axis)
        how = {"strides": layer.strides, "pads": layer.pads, "dilations": layer.dilations}
        y = net.node("Conv", y, weight, net.bias(layer.channels), group=layer.channels, **how)
        y = net.quantized(net.node("Relu", y) if layer.relu else y, STEP, 3)
        outputs.append(y)
    y = net.quantized(net.node("Conv", outputs[0], net.weight(6, LAYERS[0].channels, 1, 1)), 0.2)
    return net.model(*outputs, net.quantized(net.node("Add", y, x), 0.3))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_the_class(dtype: Any, tmp_path: Path) -> None:
    model = network(dtype)
    build_archive(from_onnx(model), tmp_path / "m.aotpack")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    archive = load(tmp_path / "m.aotpack")
    for batch, threads in ((1, 1), (1, 3), (3, 2), (4, 5)):
        x = example(batch, 6, 13, 11)
        results = archive.context(num_threads=threads).run([x])
        for name, found, wanted in zip((*LAYERS, "sum"), results, session.run(None, {"x": x}), strict=True):
            steps = np.abs(np.asarray(found) - wanted) / (0.3 if name == "sum" else STEP)
            assert len(np.unique(wanted)) > 4, name
            # A step in the middle shows at the end in a few places.
            assert steps.max() < 2.01, name
            assert (steps > 1e-3).mean() < (0.2 if name == "sum" else 0.02), name
