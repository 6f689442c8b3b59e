"""Operators over quantized values (QLinearConv and its like) are computed by the int8 kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import aotpack.runtime
from aotpack.export import build_archive, from_onnx, ops
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from tests.export.onnx.one_node import CONTRIB, Array, by_onnxruntime, feed, one_node
from tests.export.onnx.quantized_models import RANDOM, Net, example
from tests.export.pass_checks import count

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")


def _bytes(*shape: int, dtype: Any = np.uint8) -> Array:
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


def _weight(*shape: int, dtype: Any = np.int8, zero: int = 0) -> Array:
    """Sums of pairs of products fit 16 bits: ONNX Runtime saturates others on processors without VNNI."""
    return (RANDOM.integers(-63, 64, shape) + zero).astype(dtype)


def _scales(count: int | None = None) -> Array:
    return np.asarray(RANDOM.random(count) * 0.01 + 0.002, np.float32)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _zero(value: int, dtype: Any = np.uint8) -> Array:
    return np.array(value, dtype)


def _check(op: str, inputs: list[Any], kernel: Any, *, domain: str = "", **attributes: Any) -> None:
    """A node whose first input alone is one of the call: one kernel computes it, as ONNX Runtime does."""
    constants = [i for i, value in enumerate(inputs) if i and value is not None]
    model = one_node(op, inputs, domain=domain, constants=constants, **attributes)
    arrays = feed(model, inputs)
    (expected,) = by_onnxruntime(model, arrays)
    code = onnx.helper.np_dtype_to_tensor_dtype(expected.dtype)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("o0", code, expected.shape))
    program = run_passes(run_passes(from_onnx(model), COMMON), CPU)
    assert count(program, kernel) == 1
    assert count(program, ops.quantize, ops.dequantize) == 0
    with torch.no_grad():
        (found,) = program.runnable()(*map(torch.from_numpy, arrays.values()))
    assert len(np.unique(expected)) > 4  # not saturated
    difference = np.abs(found.numpy().astype(np.float64) - expected)
    assert found.numpy().dtype == expected.dtype
    if found.dtype == torch.float32:
        assert difference.max() <= 1e-5 * np.abs(expected).max()
        return
    assert difference.max() <= 1
    assert (difference > 0).sum() <= max(0.01 * difference.size, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("by_channel", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("weight", "how"),
    [
        ((8, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((8, 6, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
        ((6, 1, 3, 3), {"group": 6, "dilations": [2, 2]}),
        ((9, 6, 1, 1), {}),
    ],
)
def test_convolutions(dtype: Any, by_channel: bool, bias: bool, weight: tuple[int, ...], how: dict[str, Any]) -> None:
    count = weight[0] if by_channel else None
    zeros = np.zeros([] if count is None else count, np.int8)
    inputs = [_bytes(2, 6, 9, 11, dtype=dtype), _scale(0.1), _zero(3, dtype), _weight(*weight), _scales(count),
              zeros, _scale(1.5), _zero(17, dtype)]  # fmt: skip
    added = [RANDOM.integers(-9999, 9999, weight[0]).astype(np.int32)] if bias else []
    _check("QLinearConv", [*inputs, *added], ops.int8_conv, **how)


def test_zero_points_of_weights() -> None:
    inputs = [_bytes(1, 6, 9, 9), _scale(0.1), _zero(120), _weight(8, 6, 3, 3, dtype=np.uint8, zero=100), _scales(),
              _zero(100), _scale(1.5), _zero(128)]  # fmt: skip
    _check("QLinearConv", inputs, ops.int8_conv, pads=[1, 1, 1, 1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [7, None])
@pytest.mark.parametrize("rows", [(15,), (3, 5)])
def test_products(dtype: Any, columns: int | None, rows: tuple[int, ...]) -> None:
    zeros = np.zeros([] if columns is None else columns, np.int8)
    a = [_bytes(*rows, 40, dtype=dtype), _scale(0.1), _zero(5, dtype)]
    b = [_weight(40, 7), _scales(columns), zeros]
    _check("QLinearMatMul", [*a, *b, _scale(1.5), _zero(11, dtype)], ops.int8_linear)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_products_with_a_bias(alpha: float, floats: bool, turned: bool) -> None:
    a = [_bytes(15, 40), _scale(0.1), _zero(5)]
    b = [_weight(*((7, 40) if turned else (40, 7))), _scales(7), np.zeros(7, np.int8)]
    sums = RANDOM.integers(-9999, 9999, 7).astype(np.int32)
    y = [] if floats else [_scale(1.5), _zero(100)]
    _check("QGemm", [*a, *b, sums, *y], ops.int8_linear, domain=CONTRIB, transB=int(turned), alpha=alpha)


def _network(dtype: Any) -> onnx.ModelProto:
    net = Net("batch", 3, 17, 19, dtype=dtype)

    def layer(op: str, *operands: Any, scale: float, domain: str = "", bias: int = 0, **how: Any) -> tuple[str, ...]:
        """The names of a result and its scale."""
        y = net.scale(scale)
        added = [net.constant(RANDOM.integers(-999, 999, bias).astype(np.int32))] if bias else []
        flat = [name for operand in operands for name in operand]
        # QGemm has its bias before the scale of the result, QLinearConv behind it.
        order = [*flat, *added, *y] if op == "QGemm" else [*flat, *y, *added]
        return (net.node(op, *order, domain=domain, **how), *y)

    def weight(*shape: int) -> tuple[str, ...]:
        zeros = np.zeros(shape[0], np.int8)
        return tuple(map(net.constant, (_weight(*shape), _scales(shape[0]), zeros)))

    numbers = net.scale(0.03)
    x = (net.node("QuantizeLinear", "x", *numbers), *numbers)
    x = layer("QLinearConv", x, weight(20, 3, 7, 7), scale=0.09, bias=20, strides=[2, 2], pads=[3] * 4)
    x = (net.node("MaxPool", x[0], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), *x[1:])
    y = layer("QLinearConv", x, weight(40, 20, 1, 1), scale=0.1, bias=40)
    y = layer("QLinearConv", y, weight(40, 1, 3, 3), scale=0.06, bias=40, group=40, pads=[1] * 4)
    y = layer("QLinearConv", y, weight(20, 40, 1, 1), scale=0.08)
    x = layer("QLinearAdd", y, x, scale=0.12, domain=CONTRIB)
    x = layer("QLinearGlobalAveragePool", x, scale=0.05, domain=CONTRIB)
    x = (net.node("Flatten", x[0]), *x[1:])
    x = layer("QGemm", x, weight(33, 20), scale=0.05, bias=33, domain=CONTRIB, transB=1)
    model = net.model(net.node("DequantizeLinear", *x))
    result = model.graph.output[0]
    result.CopyFrom(onnx.helper.make_tensor_value_info(result.name, onnx.TensorProto.FLOAT, ["batch", 33]))
    return model


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_an_archive_computes_by_the_kernels(dtype: Any, tmp_path: Path) -> None:
    model = _network(dtype)
    program = from_onnx(model)
    lowered = run_passes(run_passes(program, COMMON), CPU)
    assert (count(lowered, ops.int8_conv), count(lowered, ops.int8_linear)) == (4, 1)
    # The sum is part of the kernel before it.
    assert sum(node.args[4] is not None for node in lowered.graph.nodes if node.target is ops.int8_conv) == 1
    build_archive(program, tmp_path / "m.aotpack")
    loaded = aotpack.runtime.load(tmp_path / "m.aotpack")
    x = example(2, 3, 17, 19)
    for batch in (x, x[:1]):
        (wanted,) = by_onnxruntime(model, {"x": batch})
        (found,) = loaded(batch).values()
        steps = np.abs(np.asarray(found) - wanted) / 0.05
        assert len(np.unique(wanted)) > 4
        # A step in the middle of the network shows at the end in a few places.
        assert steps.max() < 2.01
        assert (steps > 1e-3).mean() < 0.2
