"""The pass that fuses additions and activations into packed calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.cpu.fuse_epilogue import fuse_epilogue
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.cpu.pack_linear import pack_linear
from tests.export.pass_checks import calls, count, operators, run

aten = torch.ops.aten


def act_of(call: torch.fx.Node) -> str:
    number = bound_arguments(call)["act"]
    return next(name for name, (known, _) in ops.ACTIVATIONS.items() if known == number)


class Block(nn.Module):
    """Two linears and a convolution for epilogues to go behind."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.second, self.conv = nn.Linear(6, 6), nn.Linear(6, 6), nn.Conv1d(4, 4, 1)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


_EPILOGUE = (fold_constants, pack_conv, pack_linear, fuse_epilogue)


def fused(function: Callable[..., Any]) -> Any:
    return run(Block(function).eval(), (torch.randn(2, 4, 6),), *_EPILOGUE)


class TestEpilogue:
    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (F.relu, "relu"),
            (lambda y: F.relu(y, inplace=True), "relu"),
            (lambda y: y.clamp(min=0), "relu"),
            (F.gelu, "gelu"),
            (lambda y: F.gelu(y, approximate="tanh"), "gelu_tanh"),
            (F.silu, "silu"),
            (torch.sigmoid, "sigmoid"),
            (torch.tanh, "tanh"),
            (F.hardswish, "hardswish"),
            (F.relu6, "relu6"),
            (lambda y: y.clamp(0, 6), "relu6"),
            (lambda y: y.clamp_(0, 6), "relu6"),
            (lambda y: y.clamp_min(0), "relu"),
            (lambda y: y.clamp_min(0).clamp_max(6), "relu6"),
            (lambda y: F.relu(y).clamp(max=6), "relu6"),
            (lambda y: F.relu(y).clamp(0, 6), "relu6"),
            (lambda y: F.hardtanh(y, 0.0, 6.0), "relu6"),
            (F.hardsigmoid, "hardsigmoid"),
        ],
    )
    def test_activations(self, function: Callable[[Tensor], Tensor], name: str) -> None:
        for source in (lambda m, x: function(m.first(x)), lambda m, x: function(m.conv(x))):
            after = fused(source)
            (call,) = calls(after, ops.packed_linear) + calls(after, ops.packed_conv)
            assert act_of(call) == name
            assert len(operators(after)) == 1

    @pytest.mark.parametrize(
        "function",
        [
            lambda y: y.clamp(0, 5),
            lambda y: y.clamp(-1, 6),
            lambda y: y.clamp_max(6),
            lambda y: F.relu(y).clamp(1, 6),
            F.hardtanh,
            F.elu,
        ],
    )
    def test_other_functions_stay(self, function: Callable[[Tensor], Tensor]) -> None:
        after = fused(lambda m, x: function(m.first(x)))
        assert len(operators(after)) == 2

    def test_a_residual_and_then_an_activation(self) -> None:
        for source in (lambda m, x: F.relu(m.first(x) + x), lambda m, x: F.relu(x + m.conv(x))):
            after = fused(source)
            (call,) = calls(after, ops.packed_linear) + calls(after, ops.packed_conv)
            assert act_of(call) == "relu"
            assert bound_arguments(call)["residual"].op == "placeholder"
            assert len(operators(after)) == 1

    def test_an_activation_and_then_a_residual_keeps_the_addition(self) -> None:
        after = fused(lambda m, x: F.relu(m.first(x)) + x)
        (call,) = calls(after, ops.packed_linear)
        assert act_of(call) == "relu"
        assert bound_arguments(call)["residual"] is None
        assert count(after, aten.add.Tensor) == 1

    def test_the_later_of_two_packed_operands_takes_the_other(self) -> None:
        for source in (lambda m, x: m.first(x) + m.second(x.sin()), lambda m, x: m.second(x.sin()) + m.first(x)):
            after = fused(source)
            one, two = calls(after, ops.packed_linear)
            assert bound_arguments(one)["residual"] is None
            assert bound_arguments(two)["residual"] is one

    def test_chains_of_residuals(self) -> None:
        after = fused(lambda m, x: F.gelu(m.conv(m.second(m.first(x) + x) + m.first(x)) + m.second(x) + x))
        # A packed call takes one residual: the last of three summands stays, and the activation behind it.
        assert operators(after)[-2:] == ["aten.add.Tensor", "aten.gelu.default"]
        assert (count(after, ops.packed_linear, ops.packed_conv), count(after, aten.add.Tensor)) == (5, 1)

    def test_a_residual_of_permuted_rows(self) -> None:
        """As ConvNeXt has it: the stream is [n, c, length], linears are applied to [n, length, c]."""

        def function(m: Block, x: Tensor) -> Tensor:
            for linear in (m.first, m.second):
                x = x + linear(x.permute(0, 2, 1)).permute(0, 2, 1)
            return x

        after = run(Block(function).eval(), (torch.randn(2, 6, 5),), *_EPILOGUE)
        one, two = calls(after, ops.packed_linear)
        assert count(after, aten.add.Tensor) == 0
        assert bound_arguments(two)["residual"] is one, "what is permuted forth and back is read as it is"

    def test_permuted_rows_that_are_read_twice_keep_the_addition(self) -> None:
        def function(m: Block, x: Tensor) -> Tensor:
            y = m.first(x).permute(0, 2, 1)
            return y * (y + x.mT)

        assert count(fused(function), aten.add.Tensor) == 1

    def test_a_residual_that_is_made_later_moves_the_call_down(self) -> None:
        def function(m: Block, x: Tensor) -> Tensor:
            y = m.first(x)
            return y + x.exp().sin()

        after = fused(function)
        assert operators(after) == ["aten.exp.default", "aten.sin.default", "aotpack.packed_linear.default"]

    @pytest.mark.parametrize(
        "function",
        [
            lambda m, x: (y := m.first(x)) + y,
            lambda m, x: (y := m.first(x), y + x),
            lambda m, x: ((y := m.first(x)) + x) * y,
            lambda m, x: torch.add(m.first(x), x, alpha=2),
            lambda m, x: m.first(x) + 1,
            lambda m, x: m.first(x) + x[:1],
            lambda m, x: m.first(x[:, :1]) + x,
            lambda m, x: m.first(x) + x.double(),
            lambda m, x: m.first(x).view(4, 2, 6) + x.view(4, 2, 6),
        ],
        ids=["itself", "also a result", "also read", "alpha", "number", "broadcast", "widened", "dtype", "view"],
    )
    def test_other_additions_stay(self, function: Callable[..., Any]) -> None:
        after = fused(function)
        assert count(after, aten.add.Tensor) == 1
        assert all(bound_arguments(call)["residual"] is None for call in calls(after, ops.packed_linear))

    def test_a_result_that_is_read_twice_keeps_its_activation_apart(self) -> None:
        after = fused(lambda m, x: F.relu(y := m.first(x)) * y)
        assert count(after, aten.relu.default) == 1
