"""Recurrent layers that are scans: capture rejects inputs of a scan that share memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from aotpack.export import from_onnx
from tests.export.onnx.one_node import by_onnxruntime, feed, imported, one_node, same

pytestmark = pytest.mark.torch


def test_gru_with_lengths() -> None:
    random = np.random.default_rng(0)
    shapes = [(5, 2, 3), (2, 12, 3), (2, 12, 4), (2, 24)]
    x, w, r, b = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    inputs = [x, w, r, b, np.array([5, 3], np.int32)]
    made = one_node("GRU", inputs, constants=(1, 2, 3), direction="bidirectional", hidden_size=4, linear_before_reset=1)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.FLOAT, [5, 2, 2, 4]))
    arrays = feed(made, inputs)
    result = by_onnxruntime(made, arrays)[0]
    same(imported(made, arrays)[0], result, 1e-5)
    assert from_onnx(made, list(arrays.values())).signature.outputs[0].shape == result.shape
