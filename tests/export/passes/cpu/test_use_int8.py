"""Quantized products become int8 kernels, and agree with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from aotpack.export import build_archive, from_onnx, ops
from aotpack.export.ir.program import Program
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from tests.export.onnx.one_node import Array
from tests.export.onnx.quantized_models import Net, example
from tests.export.pass_checks import count

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")

INT8 = (ops.int8_conv, ops.int8_linear)
FLOAT = (ops.packed_conv, ops.packed_linear, torch.ops.aten.convolution.default, torch.ops.aten.mm.default)


def lowered(model: onnx.ModelProto) -> Program:
    return run_passes(run_passes(from_onnx(model), COMMON), CPU)


def close(found: Any, wanted: Array, step: float, rare: float) -> None:
    """All but rare roundings are equal; these are off by one step."""
    steps = np.abs(np.asarray(found, np.float64) - wanted) / step
    assert found.shape == wanted.shape
    assert steps.max(initial=0) < 1.01
    assert (steps > 1e-3).sum() <= max(rare * steps.size, 1)


def expected_of(model: onnx.ModelProto, x: Array) -> list[Array]:
    """Of ONNX Runtime by floats: its integers saturate on processors without VNNI."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, {"x": x})
    return results


def check(
    model: onnx.ModelProto, x: Array, *, products: int, step: float, rare: float = 0.004, floats: int = 0
) -> Program:
    """The program after passes has so many int8 products, and answers as ONNX Runtime does.

    A step in the middle of a network, which is rare, shows in several of the results: `rare` is the part of them.
    """
    program = lowered(model)
    assert count(program, *INT8) == products
    assert count(program, *FLOAT) == floats
    assert count(program, ops.quantize, ops.dequantize) == 0
    expected = expected_of(model, x)
    with torch.no_grad():
        found = program.runnable()(torch.from_numpy(x))
    for got, wanted in zip(found, expected, strict=True):
        assert len(np.unique(wanted)) > 4  # not saturated
        close(got.numpy(), wanted, step, rare)
    return program


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize(
    ("weight", "how"),
    [
        ((8, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((8, 6, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
        ((4, 6, 3, 3), {"dilations": [2, 2], "pads": [1, 2, 1, 0]}),
        ((8, 3, 3, 3), {"group": 2}),
        ((6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
        ((12, 1, 3, 3), {"group": 6}),
        ((9, 6, 1, 1), {"strides": [2, 2]}),
    ],
)
def test_convolutions(dtype: Any, axis: int | None, weight: tuple[int, ...], how: dict[str, Any]) -> None:
    net = Net(2, 6, 9, 11, dtype=dtype)
    y = net.node("Conv", net.quantized("x"), net.weight(*weight, axis=axis), net.bias(weight[0]), **how)
    check(net.model(net.quantized(y, 0.1)), example(2, 6, 9, 11), products=1, step=0.1)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    shape = (1, 4, 6, 7, 8)[: 2 + rank]
    net = Net(*shape)
    y = net.node("Conv", net.quantized("x"), net.weight(8, 4, *([3] * rank)), pads=[1] * (2 * rank))
    check(net.model(net.quantized(y, 0.1)), example(*shape), products=1, step=0.1)


@pytest.mark.parametrize("zero", [128, 100, 3])
def test_zero_points_of_weights(zero: int) -> None:
    net = Net(1, 6, 9, 9)
    x = net.quantized("x")
    y = net.node("Conv", x, net.weight(8, 6, 3, 3, axis=None, dtype=np.uint8, zero=zero), pads=[1, 1, 1, 1])
    check(net.model(net.quantized(y, 0.3)), example(1, 6, 9, 9), products=1, step=0.3)


@pytest.mark.parametrize("limit", ["Relu", "Clip", "both"])
@pytest.mark.parametrize("zero", [0, 40])
def test_limits(limit: str, zero: int) -> None:
    net = Net(1, 6, 9, 9)
    y = net.node("Conv", net.quantized("x"), net.weight(8, 6, 3, 3), net.bias(8))
    if limit != "Clip":
        y = net.node("Relu", y)
    if limit != "Relu":
        y = net.node("Clip", y, net.constant(np.float32(-0.3)), net.constant(np.float32(1.13)))
    program = check(net.model(net.quantized(y, 0.02, zero)), example(1, 6, 9, 9), products=1, step=0.02)
    assert count(program, torch.ops.aten.relu.default) == 0


def test_activations_between_convolutions_stay_bytes() -> None:
    net = Net(1, 4, 12, 12)
    x = net.quantized("x")
    x = net.quantized(net.node("Relu", net.node("Conv", x, net.weight(8, 4, 3, 3), net.bias(8))), 0.08, 0)
    x = net.quantized(net.node("Conv", x, net.weight(8, 8, 1, 1), net.bias(8)), 0.09)
    x = net.node("Conv", x, net.weight(5, 8, 3, 3))
    program = check(net.model(x), example(1, 4, 12, 12), products=3, step=0.1, rare=0.1)
    first, second, third = program.graph.find_nodes(op="call_function", target=ops.int8_conv)
    assert second.args[0] is first
    assert third.args[0] is second
    assert [node.meta["val"].dtype for node in (first, second, third)] == [torch.uint8, torch.uint8, torch.float32]


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_residuals(middle: bool, relu: bool, dtype: Any) -> None:
    net = Net(1, 8, 7, 7, dtype=dtype)
    x = net.quantized("x")
    y = net.node("Conv", x, net.weight(8, 8, 3, 3), net.bias(8), pads=[1, 1, 1, 1])
    if middle:
        y = net.quantized(y, 0.07)
    y = net.node("Add", y, x)
    if relu:
        y = net.node("Relu", y)
    program = check(net.model(net.quantized(y, 0.11)), example(1, 8, 7, 7), products=1, step=0.11)
    (conv,) = program.graph.find_nodes(op="call_function", target=ops.int8_conv)
    assert conv.args[4] is not None
    assert conv.meta["val"].dtype == (torch.int8 if dtype == np.int8 else torch.uint8)


def test_two_branches_meet() -> None:
    net = Net(1, 8, 8, 8)
    x = net.quantized("x")
    a = net.quantized(net.node("Conv", x, net.weight(16, 8, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), 0.1)
    b = net.quantized(net.node("Conv", x, net.weight(16, 8, 1, 1), strides=[2, 2]), 0.06)
    check(
        net.model(net.quantized(net.node("Relu", net.node("Add", a, b)), 0.1, 0)),
        example(1, 8, 8, 8),
        products=2,
        step=0.1,
    )


def test_a_value_with_other_readers_is_kept() -> None:
    net = Net(1, 4, 6, 6)
    y = net.node("Conv", net.quantized("x"), net.weight(4, 4, 3, 3))
    model = net.model(net.quantized(net.node("Relu", y), 0.1), net.node("Sigmoid", y))
    check(model, example(1, 4, 6, 6), products=1, step=0.1)


def test_pooling_stays_between_bytes() -> None:
    net = Net(5, 4, 12, 12)
    x = net.quantized(net.node("Conv", net.quantized("x"), net.weight(8, 4, 3, 3)), 0.1)
    x = net.quantized(net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 0.1)
    x = net.quantized(net.node("GlobalAveragePool", net.node("Conv", x, net.weight(8, 8, 3, 3))), 0.05)
    x = net.node("Flatten", x)
    x = net.node("Gemm", x, net.weight(5, 8), net.bias(5), transB=1)
    check(net.model(net.quantized(x, 0.02)), example(5, 4, 12, 12), products=3, step=0.02, rare=0.1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_linears(dtype: Any) -> None:
    net = Net(3, 5, 24, dtype=dtype)
    x = net.quantized(
        net.node("Add", net.node("MatMul", net.quantized("x"), net.weight(24, 40, axis=1)), net.bias(40)), 0.1
    )
    x = net.quantized(net.node("Relu", net.node("MatMul", x, net.weight(40, 7, axis=None))), 0.2)
    x = net.node("Reshape", x, net.constant(np.array([15, 7])))
    x = net.node("Gemm", x, net.weight(7, 3, axis=1), net.bias(3))
    check(net.model(net.quantized(x, 0.3)), example(3, 5, 24), products=3, step=0.3, rare=0.1)


def test_scales_along_the_depth_stay_floats() -> None:
    net = Net(3, 24)
    x = net.node("MatMul", net.quantized("x"), net.weight(24, 40, axis=0))
    check(net.model(net.quantized(x, 0.1)), example(3, 24), products=0, floats=1, step=0.1)


def test_a_dynamic_batch() -> None:
    net = Net("batch", 4, 8, 8)
    x = net.quantized(net.node("Conv", net.quantized("x"), net.weight(8, 4, 3, 3), pads=[1, 1, 1, 1]), 0.1)
    model = net.model(net.quantized(net.node("Relu", net.node("Conv", x, net.weight(8, 8, 3, 3))), 0.1))
    for batch in (1, 3):
        check(model, example(batch, 4, 8, 8), products=2, step=0.1)


def _network(dtype: Any) -> tuple[onnx.ModelProto, Array]:
    net = Net("batch", 3, 25, 23, dtype=dtype)
    x = net.quantized("x", 0.03)
    x = net.node("Relu", net.node("Conv", x, net.weight(20, 3, 7, 7), net.bias(20), strides=[2, 2], pads=[3] * 4))
    x = net.quantized(x, 0.07, 3)
    x = net.quantized(net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.07, 3)
    y = net.quantized(net.node("Relu", net.node("Conv", x, net.weight(40, 20, 1, 1), net.bias(40))), 0.09, 3)
    y = net.node("Conv", y, net.weight(40, 1, 3, 3), net.bias(40), group=40, pads=[1] * 4)
    y = net.quantized(net.node("Clip", y, net.constant(np.float32(0)), net.constant(np.float32(6))), 0.03, 3)
    y = net.quantized(net.node("Conv", y, net.weight(20, 40, 1, 1, axis=None)), 0.05)
    x = net.quantized(net.node("Add", y, x), 0.08)
    y = net.node("Conv", x, net.weight(70, 20, 3, 3, dtype=np.uint8, zero=9, axis=None), strides=[2, 2])
    x = net.quantized(net.node("Relu", y), 0.5)
    x = net.node("Flatten", net.quantized(net.node("GlobalAveragePool", x), 0.2))
    return net.model(net.quantized(net.node("Gemm", x, net.weight(33, 70), net.bias(33), transB=1), 0.1)), example(
        2, 3, 25, 23
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_an_archive_computes_by_the_kernels(dtype: Any, tmp_path: Path) -> None:
    import aotpack.runtime

    model, x = _network(dtype)
    build_archive(from_onnx(model), tmp_path / "m.aotpack")
    loaded = aotpack.runtime.load(tmp_path / "m.aotpack")
    for batch in (x, x[:1]):
        (wanted,) = expected_of(model, batch)
        (found,) = loaded(batch).values()
        steps = np.abs(np.asarray(found) - wanted) / 0.1
        # A step in the middle of the network shows at the end in a few places.
        assert steps.max() < 2.01
        assert (steps > 1e-3).mean() < 0.1
