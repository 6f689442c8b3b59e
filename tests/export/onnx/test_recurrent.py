"""Recurrent layers: scans, whose inputs may not share memory, and dynamic lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aotpack
from aotpack.errors import AotpackError
from aotpack.export import BuildOptions, build_archive, from_onnx
from tests.export.onnx.one_node import CONTRIB, agree, by_onnxruntime, feed, imported, one_node, same

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


def test_length_of_an_lstm_is_dynamic(tmp_path: Path, cache_dir: Path) -> None:
    random = np.random.default_rng(0)
    x, w, r, b = (
        random.standard_normal(shape).astype(np.float32) for shape in [(5, 1, 3), (2, 16, 3), (2, 16, 4), (2, 32)]
    )
    made = one_node("LSTM", [x, w, r, b], constants=(1, 2, 3), direction="bidirectional", hidden_size=4)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "length"
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.FLOAT, ["length", 2, 1, 4]))
    path = tmp_path / "lstm.aotpack"
    build_archive(from_onnx(made), path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path, num_threads=1)
    for length in (1, 9):
        x = random.standard_normal((length, 1, 3)).astype(np.float32)
        np.testing.assert_allclose(np.asarray(archive(x)["o0"]), by_onnxruntime(made, {"i0": x})[0], atol=1e-5)


def _layer(op: str, *, features: int = 3, hidden: int = 4) -> onnx.ModelProto:
    """A layer for 3 features with 4 hidden ones, whose input and state have others if told so."""
    gates = 4 if op == "LSTM" else 3
    shapes = [(5, 2, features), (1, gates * 4, 3), (1, gates * 4, 4), (1, gates * 8), (1, 2, hidden)]
    x, w, r, b, state = (np.zeros(shape, np.float32) for shape in shapes)
    inputs = [x, w, r, b, None, state, *([state] if op == "LSTM" else [])]
    how = {"linear_before_reset": 1} if op == "GRU" else {}
    made = one_node(op, inputs, constants=(1, 2, 3), hidden_size=4, **how)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.FLOAT, list("abcd")))
    return made


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_batch_of_the_state_is_that_of_the_input(op: str) -> None:
    """torch's layers do not compare them, and read beyond the state."""
    made = _layer(op)
    names = "nmk"[: len(made.graph.input)]
    for value, name in zip(made.graph.input, names, strict=True):
        value.type.tensor_type.shape.dim[1].dim_param = name
    signature = from_onnx(made, sizes=dict.fromkeys(names, 2)).signature
    assert [dim.name for dim in signature.dims] == ["n"], str(signature)
    with pytest.raises(AotpackError, match="batch of the state"):
        from_onnx(made)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_features_are_those_of_the_weights(op: str) -> None:
    for made, what in ((_layer(op, features=2), "input"), (_layer(op, hidden=2), "state")):
        with pytest.raises(AotpackError, match=f"features of the {what}"):
            from_onnx(made)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_in_8_bits(direction: str, channels: bool) -> None:
    random = np.random.default_rng(0)
    directions, hidden = 1 + (direction == "bidirectional"), 8
    # Of seven bits: without VNNI, ONNX Runtime's sums of two products saturate beyond.
    w, r = (random.integers(-64, 65, (directions, size, 4 * hidden)).astype(np.int8) for size in (6, hidden))
    scales = [directions, 4 * hidden] if channels else [directions]
    scale = random.uniform(0.005, 0.01, scales).astype(np.float32)
    zero = np.zeros(scales, np.int8)
    bias = random.standard_normal((directions, 8 * hidden)).astype(np.float32)
    state = random.standard_normal((directions, 1, hidden)).astype(np.float32)
    x = random.standard_normal((5, 1, 6)).astype(np.float32)
    inputs = [x, w, r, bias, None, state, state, None, scale, zero, scale, zero]
    how: dict[str, Any] = {"outputs": 3, "direction": direction, "hidden_size": hidden, "domain": CONTRIB}
    agree("DynamicQuantizeLSTM", inputs, constants=(1, 2, 3, 8, 9, 10, 11), **how)
