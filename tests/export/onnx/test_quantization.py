"""Quantization, against exact integers and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotpack.export.onnx.ops.quantization import integer_convolution, integer_product
from tests.export.onnx.one_node import CONTRIB, Array, agree

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")

_RANDOM = np.random.default_rng(3)


def _unsigned(*shape: int, top: int = 256) -> Array:
    return _RANDOM.integers(0, top, shape).astype(np.uint8)


def _signed(*shape: int, top: int = 64) -> Array:
    """Sums of pairs of products fit 16 bits: ONNX Runtime saturates others on processors without VNNI."""
    return _RANDOM.integers(-top, top, shape).astype(np.int8)


def _floats(*shape: int) -> Array:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _zero(value: int, dtype: Any = np.uint8) -> Array:
    return np.array(value, dtype)


@pytest.mark.parametrize("left", [torch.uint8, torch.int8])
@pytest.mark.parametrize("right", [torch.uint8, torch.int8])
def test_products_of_integers_are_exact(left: torch.dtype, right: torch.dtype) -> None:
    a = torch.randint(0, 256, (2, 5, 300)).to(torch.uint8).view(left)
    for shape in ((300, 7), (2, 300, 7)):
        b = torch.randint(0, 256, shape).to(torch.uint8).view(right)
        zeros = torch.randint(-128, 128, (5, 1), dtype=torch.int32), torch.randint(-128, 128, (7,), dtype=torch.int32)
        exact = (a.long() - zeros[0]) @ (b.long() - zeros[1])
        torch.testing.assert_close(integer_product(a, b, *zeros).long(), exact)
        torch.testing.assert_close(integer_product(a, b, None, None).long(), a.long() @ b.long())


@pytest.mark.parametrize("channels", [3, 200, 600])
def test_convolutions_of_integers_are_exact(channels: int) -> None:
    from aotpack.export.onnx.base.graph import Node

    node = Node("c", "", "ConvInteger", 10, (), (), {"pads": [1, 1, 1, 1]})
    x = torch.full((1, channels, 5, 5), 255, dtype=torch.uint8)
    w = torch.randint(200, 256, (2, channels, 3, 3)).to(torch.uint8)
    exact = torch.nn.functional.conv2d(x.double() - 3, w.double(), padding=1).long()
    found = integer_convolution(node, x, w, torch.tensor(3, dtype=torch.uint8), None)
    assert found.dtype == torch.int32
    torch.testing.assert_close(found.long(), exact)


def test_quantization_agrees_with_onnxruntime() -> None:
    x = _floats(3, 4, 6) * 10
    for zero in (_zero(130), _zero(-3, np.int8)):
        agree("QuantizeLinear", [x, _scale(0.07), zero], tolerance=0)
    agree("QuantizeLinear", [x, np.abs(_floats(4)) + 0.1, _signed(4)], axis=1, tolerance=0)
    agree("QuantizeLinear", [x, np.abs(_floats(3, 2, 6)) + 0.1, _signed(3, 2, 6)], axis=1, block_size=2, tolerance=0)
    agree("DequantizeLinear", [_signed(3, 4, 6), np.abs(_floats(4)), _signed(4)], axis=1)
    agree("DequantizeLinear", [_signed(3, 4, 6), _floats(3, 4, 2), _signed(3, 4, 2)], axis=2, block_size=3)
    for values in (x, np.abs(x), np.zeros_like(x)):
        agree("DynamicQuantizeLinear", [values], outputs=3, tolerance=0)


def test_layers_of_integers_agree_with_onnxruntime() -> None:
    agree("MatMulInteger", [_unsigned(4, 16), _signed(16, 5), _zero(3)], tolerance=0)
    agree(
        "ConvInteger", [_unsigned(1, 3, 8, 8), _unsigned(4, 3, 3, 3), _zero(120), _zero(7)], pads=[1] * 4, tolerance=0
    )
    weights, scales = _signed(4, 3, 3, 3), np.abs(_floats(4)) + 0.1
    agree(
        "QLinearConv",
        [_unsigned(2, 3, 8, 8), _scale(0.1), _zero(120), weights, scales, np.zeros(4, np.int8), _scale(5), _zero(128),
         _RANDOM.integers(-999, 999, 4).astype(np.int32)],
        strides=[2, 2], tolerance=0,
    )  # fmt: skip
    product = [
        _unsigned(4, 16),
        _scale(0.1),
        _zero(3),
        _signed(16, 5),
        _scale(0.2),
        _zero(4, np.int8),
        _scale(9),
        _zero(99),
    ]
    agree("QLinearMatMul", product, tolerance=0)


def test_layers_of_onnxruntime() -> None:
    how: dict[str, Any] = {"domain": CONTRIB}
    for op in ("QLinearAdd", "QLinearMul"):
        pair = [_unsigned(2, 5), _scale(0.1), _zero(3), _unsigned(5), _scale(0.2), _zero(7), _scale(0.5), _zero(9)]
        agree(op, pair, tolerance=0, **how)
    x, scale, zero = _unsigned(2, 5, 7, 7), _scale(0.1), _zero(128)
    agree("QLinearGlobalAveragePool", [x, scale, zero, _scale(0.02), _zero(120)], tolerance=0, **how)
    agree("QLinearAveragePool", [x, scale, zero, _scale(0.05), _zero(99)], kernel_shape=[3, 3], tolerance=0, **how)
    fixed = {"constants": (1, 2, 3, 4), "tolerance": 0, **how}
    agree("QLinearSigmoid", [x, scale, zero, _scale(0.004), _zero(0)], **fixed)
    agree("QLinearLeakyRelu", [x, scale, zero, scale, _zero(20)], alpha=0.2, **fixed)
    joined = [scale, _zero(3), _unsigned(2, 5), scale, _zero(3), _unsigned(2, 4), _scale(0.07), _zero(30)]
    agree("QLinearConcat", joined, axis=1, tolerance=0, constants=(0, 1, 3, 4, 6, 7), **how)
    a, b = _floats(4, 16), _signed(16, 5)
    agree("DynamicQuantizeMatMul", [a, b, scale, _zero(3, np.int8), _floats(5)], constants=(1, 2, 3), **how)
    rows = [_unsigned(4, 16), b, scale, scale, _zero(3), _zero(4, np.int8), _floats(5)]
    agree("MatMulIntegerToFloat", rows, **how)
    sums = _RANDOM.integers(-99, 99, 5).astype(np.int32)
    gemm = [_unsigned(4, 16), scale, _zero(3), b, np.abs(_floats(5)), np.zeros(5, np.int8), sums, _scale(9), _zero(100)]
    agree("QGemm", gemm, tolerance=0, **how)
    attention = [_unsigned(2, 5, 8), _signed(8, 24), _floats(24), _scale(0.01), _scale(0.01), None, _zero(128),
                 _zero(0, np.int8)]  # fmt: skip
    agree("QAttention", attention, num_heads=2, **how)
    agree("NhwcMaxPool", [_unsigned(1, 6, 6, 3)], kernel_shape=[2, 2], strides=[2, 2], tolerance=0, **how)
