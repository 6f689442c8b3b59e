"""Max pooling: which ones become one call, of floats or of bytes, and that answers stay eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpack.export import from_onnx, ops
from aotpack.export.driver.pipeline import PASSES
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.pipeline import CPU
from aotpack.export.passes.runner import run_passes
from tests.export.conftest import Build, check
from tests.export.onnx.quantized_models import Net
from tests.export.pass_checks import calls, run

BATCH = torch.export.Dim("batch", min=1, max=64)
SIDE = torch.export.Dim("side", min=7, max=64)


class Pools(nn.Module):
    """Convolutions with poolings between them and behind them."""

    def __init__(self, *pools: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 40, 3, padding=1)
        self.pools = nn.ModuleList(pools)
        self.last = nn.Conv2d(40, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        for pool in self.pools:
            x = pool(x)
        return self.last(x)


def stem() -> Pools:
    """As ResNet has it."""
    return Pools(nn.MaxPool2d(3, 2, 1)).eval()


def test_a_pooling_between_convolutions_is_a_call_and_nothing_else_moves() -> None:
    program = run(stem(), (torch.randn(2, 3, 13, 12),), *PASSES)
    (pool,) = calls(program, ops.max_pool)
    assert list(pool.args[2:]) == [[3, 3], [2, 2], [1, 1], [1, 1], False]
    (result,) = calls(program, ops.to_layout)
    assert result.args[0] is calls(program, ops.packed_conv)[-1]


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d((3, 2), (1, 3), (1, 0)),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d(5, 1, 2),
        nn.MaxPool2d(2, 1, 1, dilation=2),
    ],
)
def test_geometries(build: Build, pool: nn.Module) -> None:
    module, x = Pools(pool, nn.MaxPool2d(2, ceil_mode=True)).eval(), torch.randn(2, 3, 11, 14)
    assert len(calls(run(module, (x,), *PASSES), ops.max_pool)) == 2
    check(build(module, (x,)), module, (x,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(build: Build, dtype: torch.dtype) -> None:
    module, x = stem().to(dtype), torch.randn(1, 3, 17, 16, dtype=dtype)
    assert calls(run(module, (x,), *PASSES, tolerance=2e-2), ops.max_pool)
    check(build(module, (x,)), module, (x,), tolerance=2e-2)


def test_dynamic_sizes(build: Build) -> None:
    module, x = stem(), torch.randn(3, 3, 20, 21)
    shapes = ({0: BATCH, 2: SIDE},)
    archive = build(module, (x,), dynamic_shapes=shapes)
    for sizes in [(1, 3, 7, 21), (5, 3, 64, 21), (2, 3, 20, 21)]:
        check(archive, module, (torch.randn(*sizes),))


def test_what_is_no_number_stays(build: Build) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(5, 5, 1, bias=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return F.max_pool2d(x, 3, 2, 1), self.conv(x)

    module, x = Odd().eval(), torch.randn(1, 5, 9, 9)
    x[0, 1, 3, 3], x[0, 2, 0, 0], x[0, 3, 8, 8], x[0, 4] = float("nan"), float("inf"), -float("inf"), -float("inf")
    assert calls(run(module, (x,), *PASSES), ops.max_pool)
    actual = build(module, (x,))(x)[0]
    torch.testing.assert_close(actual, module(x)[0], rtol=0, atol=0, equal_nan=True)


def test_indices_and_other_ranks_are_left() -> None:
    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.conv(x)
            return *F.max_pool2d(y, 2, return_indices=True), F.max_pool2d(y[0], 2), F.max_pool1d(y[0], 2)

    assert not calls(run(Left().eval(), (torch.randn(1, 4, 9, 9),), *PASSES), ops.max_pool)


class Quantized(nn.Module):
    """A pooling of quantized values, quantized again, and read as it is."""

    def __init__(self, scale: float, dtype: torch.dtype, again: float | None = None) -> None:
        super().__init__()
        self.dtype, self.again = dtype, again is not None
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("again_scale", torch.tensor(scale if again is None else again))
        self.register_buffer("zero", torch.tensor(3, dtype=dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = ops.quantize(x, self.scale, self.zero, self.dtype)
        pooled = F.max_pool2d(ops.dequantize(numbers, self.scale, self.zero), 3, 2, 1)
        return pooled, ops.quantize(pooled, self.again_scale if self.again else self.scale, self.zero, self.dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("scale", [0.5, -0.25])
@pytest.mark.parametrize("again", [None, 0.125])
def test_bytes_are_pooled_whatever_the_sign_of_the_scale(
    build: Build, dtype: torch.dtype, scale: float, again: float | None
) -> None:
    module = Quantized(scale, dtype, again).eval()
    x = torch.randn(2, 40, 9, 11) * 20
    program = run(module, (x,), *PASSES)
    (pool,) = calls(program, ops.max_pool)
    source: Any = pool.args[0]
    assert source.meta["val"].dtype == dtype
    for actual, expected in zip(build(module, (x,))(x), module(x), strict=True):
        assert torch.equal(torch.as_tensor(actual), expected)


def test_no_loop_is_left_between_quantized_convolutions() -> None:
    net = Net(1, 8, 20, 18)
    numbers = net.scale(0.1)  # quantizers give a pooling's result the constants of what it reads

    def quantized(y: str) -> str:
        return net.node("DequantizeLinear", net.node("QuantizeLinear", y, *numbers), *numbers)

    y = net.node("Relu", net.node("Conv", net.quantized("x"), net.weight(40, 8, 3, 3), pads=[1, 1, 1, 1]))
    y = net.node("MaxPool", quantized(y), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = net.node("Conv", quantized(y), net.weight(16, 40, 1, 1))
    model = net.model(net.quantized(y, 0.2))
    program = run_passes(run_passes(from_onnx(model), COMMON), CPU)
    first, last = calls(program, ops.int8_conv)
    (pool,) = calls(program, ops.max_pool)
    assert pool.args[0] is first
    assert last.args[0] is pool
