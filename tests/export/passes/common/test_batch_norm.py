"""The pass that folds batch norms into what is before them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.passes.common.batch_norm import fold_batch_norm
from aotpack.export.passes.common.fold_constants import fold_constants
from aotpack.export.passes.common.norm_scales import scale_batch_norm
from aotpack.export.passes.patterns.batch_norms import BATCH_NORMS
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import attributes, batch_norm, calls, count, operators, run

aten = torch.ops.aten

_CONVOLUTIONS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "conv1d": (nn.Conv1d(3, 6, 3, stride=2), (2, 3, 9)),
    "conv1d same": (nn.Conv1d(3, 6, 3, padding="same", bias=False), (2, 3, 9)),
    "conv2d": (nn.Conv2d(3, 6, 3, padding=1, bias=False), (2, 3, 7, 6)),
    "conv2d grouped": (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 7, 6)),
    "conv2d depthwise": (nn.Conv2d(6, 6, 3, groups=6), (2, 6, 7, 6)),
    "conv3d": (nn.Conv3d(2, 6, 2), (2, 2, 4, 5, 6)),
    "transposed 1d": (nn.ConvTranspose1d(3, 6, 3), (2, 3, 9)),
    "transposed 2d grouped": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (2, 4, 5, 6)),
    "transposed 3d": (nn.ConvTranspose3d(2, 6, 2, bias=False), (2, 2, 3, 3, 3)),
    "linear": (nn.Linear(3, 6), (5, 3)),
}


class TestBatchNorm:
    @pytest.mark.parametrize("affine", [True, False])
    @pytest.mark.parametrize("name", _CONVOLUTIONS)
    def test_folds_into_what_is_before_it(self, name: str, affine: bool) -> None:
        convolution, sizes = _CONVOLUTIONS[name]
        model = nn.Sequential(convolution, batch_norm(len(sizes), affine=affine)).eval()
        after = run(model, (torch.randn(sizes),), fold_batch_norm)
        assert count(after, *BATCH_NORMS) == 0
        assert len(operators(after)) == 1
        infos = [after.constant_info(attribute) for attribute in attributes(after)]
        assert [info.role for info in infos] == ["folded", "folded"]
        assert {"0.weight", "1.running_mean", "1.running_var"} <= set(infos[0].sources)

    @pytest.mark.parametrize(
        ("function", "flag"),
        [(aten._native_batch_norm_legit_no_training.default, ()), (aten.native_batch_norm.default, (False,))],
        ids=str,
    )
    def test_the_functional_forms(self, function: Any, flag: tuple[bool, ...]) -> None:
        norm = batch_norm(4)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 6, 3), norm

            def forward(self, x: Tensor) -> Tensor:
                n = self.norm
                y: Tensor = function(self.conv(x), n.weight, n.bias, n.running_mean, n.running_var, *flag, 0.1, 1e-2)[0]
                return y

        assert count(run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_batch_norm), *BATCH_NORMS) == 0

    def test_a_convolution_that_something_else_reads_is_computed_once(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.a, self.b = nn.Conv2d(3, 6, 3), batch_norm(4), batch_norm(4)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                y = self.conv(x)
                return self.a(y), self.b(y), y

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_batch_norm, scale_batch_norm)
        assert operators(after) == ["aten.conv2d.default", *["aten.mul.Tensor", "aten.add.Tensor"] * 2]
        assert "conv.weight" in attributes(after)

    def test_calls_of_one_convolution_with_two_norms_and_without(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.a, self.b = nn.Conv2d(3, 6, 3), batch_norm(4), batch_norm(4)

            def forward(self, x: Tensor) -> Tensor:
                return self.a(self.conv(x)) + self.b(self.conv(x)) * self.conv(x)

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_batch_norm)
        weights = [str(call.args[1].target) for call in calls(after, aten.conv2d.default)]
        assert count(after, *BATCH_NORMS) == 0
        assert weights == ["_conv_weight_bn", "_conv_weight_bn_2", "conv.weight"]

    def test_a_module_that_is_called_twice_is_folded_once(self) -> None:
        block = nn.Sequential(nn.Conv2d(6, 6, 1), batch_norm(4))
        after = run(nn.Sequential(block, block).eval(), (torch.randn(2, 6, 5, 5),), fold_batch_norm)
        assert attributes(after) == ["_1_0_weight_bn", "_1_0_weight_bn_bias"]
        assert count(after, aten.conv2d.default) == 2

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, w, b: torch.addmm(b, x, w, alpha=0.5, beta=2),
            lambda x, w, b: x @ w,
            lambda x, w, b: F.linear(x, w.t(), b),
            lambda x, w, b: F.linear(x, w.t(), b[None]),
        ],
    )
    def test_matrix_products(self, function: Any) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.randn(3, 6)), nn.Parameter(torch.randn(6))
                self.norm = batch_norm(2)

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(function(x, self.weight, self.bias))

        after = run(Model().eval(), (torch.randn(4, 3),), fold_constants, fold_batch_norm)
        assert count(after, *BATCH_NORMS) == 0
        assert count(after, aten.linear.default) == 1

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_norms_in_single_precision_of_half_convolutions(self, dtype: torch.dtype) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3).to(dtype), batch_norm(4)).eval()
        after = run(model, (torch.randn(2, 3, 5, 5, dtype=dtype),), fold_batch_norm, tolerance=3e-2)
        assert count(after, *BATCH_NORMS) == 0
        assert {node.meta["val"].dtype for node in after.graph.find_nodes(op="get_attr")} == {dtype}

    def test_autocast(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3), batch_norm(4)).eval()

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, x: Tensor) -> Tensor:
                with torch.autocast("cpu", torch.bfloat16):
                    return self.inner(x)

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_constants, fold_batch_norm, tolerance=3e-2)
        assert count(after, *BATCH_NORMS) == 0

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_the_weights_keep_their_dtype(self, dtype: torch.dtype) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3), batch_norm(4)).eval().to(dtype)
        after = run(model, (torch.randn(2, 3, 5, 5, dtype=dtype),), fold_batch_norm, tolerance=2e-2)
        assert {node.meta["val"].dtype for node in after.graph.find_nodes(op="get_attr")} == {dtype}

    def test_statistics_that_a_backward_reads_stay(self) -> None:
        norm = batch_norm(4)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 6, 3), norm

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                n = self.norm
                return torch.native_batch_norm(
                    self.conv(x), n.weight, n.bias, n.running_mean, n.running_var, False, 0.1, 1e-2
                )

        x = torch.randn(2, 3, 5, 5)
        program = run_passes(aot_export(Model().eval(), (x,)), (fold_batch_norm, scale_batch_norm))
        assert count(program, *BATCH_NORMS) == 1

    def test_norms_of_other_values_stay(self) -> None:
        for function in (nn.Sequential(nn.ReLU(), batch_norm(4)), nn.Sequential(nn.AvgPool2d(2), batch_norm(4))):
            assert count(run(function.eval(), (torch.randn(2, 6, 4, 4),), fold_batch_norm), *BATCH_NORMS) == 1

    def test_training_stays(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False))
        assert count(run(model, (torch.randn(2, 3, 5, 5),), fold_batch_norm), *BATCH_NORMS) == 1

    def test_weights_that_are_inputs_stay(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = batch_norm(4)

            def forward(self, x: Tensor, weight: Tensor) -> Tensor:
                return self.norm(F.conv2d(x, weight))

        args = (torch.randn(2, 3, 5, 5), torch.randn(6, 3, 3, 3))
        assert count(run(Model().eval(), args, fold_batch_norm), *BATCH_NORMS) == 1

    @pytest.mark.parametrize("length", [6, 9])
    def test_an_unbatched_convolutions_result_has_its_channels_elsewhere(self, length: int) -> None:
        model = nn.Sequential(nn.Conv1d(3, 6, 1), batch_norm(2, channels=length)).eval()
        assert count(run(model, (torch.randn(3, length),), fold_batch_norm), *BATCH_NORMS) == 1

    def test_a_linear_over_sequences_stays(self) -> None:
        model = nn.Sequential(nn.Linear(3, 6), batch_norm(3, channels=5)).eval()
        assert count(run(model, (torch.randn(2, 5, 3),), fold_batch_norm), *BATCH_NORMS) == 1
