"""Passes that simplify: no-ops, tied weights, constants, batch norm, views, layouts of results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.errors import PassError
from aotpack.export import aot_export, ops
from aotpack.export.passes import PASSES
from aotpack.export.passes.batch_norm import fold_batch_norm
from aotpack.export.passes.constants import fold_constants
from aotpack.export.passes.noops import remove_noops
from aotpack.export.passes.output_layout import keep_output_layout
from aotpack.export.passes.pack_conv import pack_conv
from aotpack.export.passes.reshape import free_views
from aotpack.export.passes.tied import merge_tied
from aotpack.export.program import Program
from aotpack.export.runner import run_passes
from tests.export.pass_checks import attributes, calls, count, operators, run

aten = torch.ops.aten


class WithConstant(nn.Module):
    """A function of a tensor and a parameter `weight`."""

    def __init__(self, function: Any, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.weight)


class TestNoops:
    def test_calls_that_compute_nothing_go(self) -> None:
        def function(x: Tensor) -> Tensor:
            y = F.dropout(x.float().detach() + 1, training=False)
            y = F.dropout(y, p=0.0, training=True).to("cpu").type_as(x)
            return y.clone() * 2

        after = run(function, (torch.randn(3),), remove_noops)
        assert operators(after) == ["aten.add.Tensor", "aten.mul.Tensor"]

    def test_conversions_copies_and_training_stay(self) -> None:
        def function(x: Tensor) -> Tensor:
            y = x.to(torch.float64).to(torch.float32)
            y = F.dropout(y, training=True)
            return y.transpose(0, 1).clone(memory_format=torch.contiguous_format)

        after = run(function, (torch.randn(3, 4),), remove_noops)
        assert count(after, aten.to.dtype) == 2
        assert count(after, aten.dropout.default, aten.clone.default) == 2

    def test_a_copy_of_an_input_stays(self) -> None:
        assert count(run(lambda x: x.clone(), (torch.randn(3),), remove_noops), aten.clone.default) == 1

    def test_a_copy_of_a_view_of_state_stays_where_state_is_written(self) -> None:
        class Memory(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(2, 3))

            def forward(self, x: Tensor) -> Tensor:
                before = self.state[0].clone()
                self.state.copy_(x)
                return before

        after = run(Memory(), (torch.randn(2, 3),), remove_noops)
        assert count(after, aten.clone.default) == 1
        assert after.graph_module(torch.ones(2, 3))[0].tolist() == [0, 0, 0]
        assert after.graph_module(torch.zeros(2, 3))[0].tolist() == [1, 1, 1]

    def test_a_copy_that_is_denser_than_its_source_stays(self) -> None:
        after = run(
            lambda x: (x + 1)[:, None].expand(3, 4).clone().as_strided((2, 2), (4, 1)),
            (torch.randn(3),),
            remove_noops,
            free_views,
        )
        assert aten.clone.default in [node.target for node in after.graph.nodes]


class TestTied:
    def test_the_same_memory_becomes_one_constant(self) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = nn.Linear(4, 4, bias=False)
                self.second = nn.Linear(4, 4, bias=False)
                self.third = nn.Linear(4, 4, bias=False)
                self.second.weight = nn.Parameter(self.first.weight.detach())

            def forward(self, x: Tensor) -> Tensor:
                return self.third(self.second(self.first(x)))

        after = run(Tied(), (torch.randn(2, 4),), merge_tied)
        assert attributes(after) == ["first.weight", "third.weight"]
        assert set(after.constant_info("first.weight").sources) == {"first.weight", "second.weight"}

    def test_other_views_of_the_memory_stay_apart(self) -> None:
        class Views(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                memory = torch.randn(4, 4)
                for name, value in (("a", memory), ("b", memory.t()), ("c", memory[:2]), ("d", memory[2:])):
                    self.register_buffer(name, value)

            def forward(self, x: Tensor) -> Tensor:
                return x @ self.a @ self.b + (self.c * self.d).sum()

        assert attributes(run(Views(), (torch.randn(2, 4),), merge_tied)) == ["a", "b", "c", "d"]


class TestConstants:
    def test_casts_and_transpositions_become_weights(self) -> None:
        model = WithConstant(lambda x, w: x @ (w.to(torch.int16).to(x.dtype).t() * 2), 9 * torch.randn(3, 4))
        after = run(model, (torch.randn(2, 4),), remove_noops, fold_constants)
        assert operators(after) == ["aten.matmul.default"]
        (name,) = attributes(after)
        assert after.constant_info(name).role == "folded"
        assert after.constant_info(name).sources == ("weight",)

    def test_results_and_tuples_of_constants_fold(self) -> None:
        model = WithConstant(lambda x, w: (x + w.split(2)[1], w.sort()[0]), torch.randn(4))
        after = run(model, (torch.randn(2),), fold_constants)
        assert operators(after) == ["aten.add.Tensor"]

    def test_values_made_of_nothing_stay(self) -> None:
        after = run(lambda x: x + torch.arange(4) * torch.ones(4), (torch.randn(4),), fold_constants)
        assert count(after, aten.arange.default, aten.ones.default) == 2

    def test_random_values_stay(self) -> None:
        model = WithConstant(lambda x, w: x + torch.rand_like(w) + torch.bernoulli(w), torch.rand(4))
        after = run(model, (torch.randn(4),), fold_constants)
        assert count(after, aten.rand_like.default, aten.bernoulli.default) == 2

    def test_dynamic_sizes_stay(self) -> None:
        model = WithConstant(lambda x, w: x + w.expand(x.shape[0], 4), torch.rand(1, 4))
        x, other = torch.randn(3, 4), torch.randn(5, 4)
        after = run(model, (x,), fold_constants, dynamic_shapes={"x": {0: Dim("n")}}, other_args=(other,))
        assert count(after, aten.expand.default) == 1

    @pytest.mark.parametrize(("rows", "folded"), [(1_000, True), (40_000, False)])
    def test_growth_is_bounded(self, rows: int, folded: bool) -> None:
        model = WithConstant(lambda x, w: x + (w.expand(rows, 8) + 1), torch.randn(1, 8))
        after = run(model, (torch.randn(rows, 8),), fold_constants)
        assert count(after, aten.expand.default) == (0 if folded else 1)

    def test_large_steps_to_small_values_fold(self) -> None:
        model = WithConstant(lambda x, w: x + w.expand(40_000, 8).sum(0), torch.randn(1, 8))
        assert count(run(model, (torch.randn(8),), fold_constants), aten.expand.default) == 0

    def test_state_stays(self) -> None:
        class Counter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(3))

            def forward(self, x: Tensor) -> Tensor:
                y = x + self.state * 2
                self.state.add_(1)
                return y

        after = run(Counter(), (torch.randn(3),), fold_constants)
        assert count(after, aten.mul.Tensor) == 1
        assert [after.graph_module(torch.zeros(3))[0][0].item() for _ in range(3)] == [0, 2, 4]


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


def batch_norm(dim: int, *, affine: bool = True, channels: int = 6) -> nn.Module:
    norm: nn.Module = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[dim](
        channels, eps=1e-2, affine=affine
    )
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        if affine:
            norm.weight.normal_()
            norm.bias.normal_()
    return norm


_BATCH_NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)


class TestBatchNorm:
    @pytest.mark.parametrize("affine", [True, False])
    @pytest.mark.parametrize("name", _CONVOLUTIONS)
    def test_folds_into_what_is_before_it(self, name: str, affine: bool) -> None:
        convolution, sizes = _CONVOLUTIONS[name]
        model = nn.Sequential(convolution, batch_norm(len(sizes), affine=affine)).eval()
        after = run(model, (torch.randn(sizes),), fold_batch_norm)
        assert count(after, *_BATCH_NORMS) == 0
        assert len(operators(after)) == 1
        infos = [after.constant_info(attribute) for attribute in attributes(after)]
        assert [info.role for info in infos] == ["folded", "folded"]
        assert {"0.weight", "1.running_mean", "1.running_var"} <= set(infos[0].sources)

    def test_the_functional_form(self) -> None:
        norm = batch_norm(4)

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 6, 3), norm

            def forward(self, x: Tensor) -> Tensor:
                n = self.norm
                y: Tensor = torch.ops.aten._native_batch_norm_legit_no_training(
                    self.conv(x), n.weight, n.bias, n.running_mean, n.running_var, 0.1, 1e-2
                )[0]
                return y

        assert count(run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_batch_norm), *_BATCH_NORMS) == 0

    def test_a_convolution_with_two_norms_and_another_reader(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.a, self.b = nn.Conv2d(3, 6, 3), batch_norm(4), batch_norm(4)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                y = self.conv(x)
                return self.a(y), self.b(y), y

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), fold_batch_norm)
        assert count(after, *_BATCH_NORMS) == 0
        assert count(after, aten.conv2d.default) == 3

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_the_weights_keep_their_dtype(self, dtype: torch.dtype) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3), batch_norm(4)).eval().to(dtype)
        after = run(model, (torch.randn(2, 3, 5, 5, dtype=dtype),), fold_batch_norm, tolerance=2e-2)
        assert {node.meta["val"].dtype for node in after.graph.find_nodes(op="get_attr")} == {dtype}

    def test_norms_of_other_values_stay(self) -> None:
        for function in (nn.Sequential(nn.ReLU(), batch_norm(4)), nn.Sequential(nn.AvgPool2d(2), batch_norm(4))):
            assert count(run(function.eval(), (torch.randn(2, 6, 4, 4),), fold_batch_norm), *_BATCH_NORMS) == 1

    def test_training_stays(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False))
        assert count(run(model, (torch.randn(2, 3, 5, 5),), fold_batch_norm), *_BATCH_NORMS) == 1

    def test_weights_that_are_inputs_stay(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = batch_norm(4)

            def forward(self, x: Tensor, weight: Tensor) -> Tensor:
                return self.norm(F.conv2d(x, weight))

        args = (torch.randn(2, 3, 5, 5), torch.randn(6, 3, 3, 3))
        assert count(run(Model().eval(), args, fold_batch_norm), *_BATCH_NORMS) == 1

    @pytest.mark.parametrize("length", [6, 9])
    def test_an_unbatched_convolutions_result_has_its_channels_elsewhere(self, length: int) -> None:
        model = nn.Sequential(nn.Conv1d(3, 6, 1), batch_norm(2, channels=length)).eval()
        assert count(run(model, (torch.randn(3, length),), fold_batch_norm), *_BATCH_NORMS) == 1

    def test_a_linear_over_sequences_stays(self) -> None:
        model = nn.Sequential(nn.Linear(3, 6), batch_norm(3, channels=5)).eval()
        assert count(run(model, (torch.randn(2, 5, 3),), fold_batch_norm), *_BATCH_NORMS) == 1


class TestViews:
    def test_views_become_reshapes(self) -> None:
        after = run(lambda x: (x + 1).view(6).view(-1, 2) * 2, (torch.randn(2, 3),), free_views)
        assert (count(after, aten.view.default), count(after, aten.reshape.default)) == (0, 2)

    def test_a_view_over_a_packed_convolution_reads_in_the_order_of_dims(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                y = self.conv(x)
                return y.view(2, -1), y.as_strided((2, 5), (36, 2), 1)

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), free_views, pack_conv)
        assert count(after, ops.packed_conv) == 1
        (strided,) = calls(after, aten.as_strided.default)
        assert strided.args[0].target is aten.clone.default


class TestOutputLayout:
    def test_results_get_the_captured_strides_back(self) -> None:
        x = torch.randn(2, 3, 8, 8)
        model = nn.Conv2d(3, 4, 3).eval()
        packed = run(model, (x,), pack_conv)
        assert not packed.graph_module(x)[0].is_contiguous()
        after = run(model, (x,), pack_conv, keep_output_layout)
        assert count(after, ops.to_layout) == 1
        assert after.graph_module(x)[0].stride() == model(x).stride()

    def test_channels_last_results_are_not_copied(self) -> None:
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        model = nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
        after = run(model, (x,), pack_conv, keep_output_layout)
        assert count(after, ops.to_layout) == 0
        assert after.graph_module(x)[0].stride() == model(x).stride()

    @pytest.mark.parametrize("low", [0, 1, 2])
    def test_dynamic_contiguous_results_are_not_copied(self, low: int) -> None:
        shapes = {"x": {0: Dim("n", min=low, max=64), 1: Dim("m", min=low, max=64)}}
        args, other = (torch.randn(3, 4, 5),), (torch.randn(7, 2, 5),)
        after = run(lambda x: x + 1, args, keep_output_layout, dynamic_shapes=shapes, other_args=other)
        assert count(after, ops.to_layout) == 0


class TestRunner:
    def program(self) -> Program:
        return aot_export(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes={"input": {0: Dim("n")}})

    def test_a_failing_pass_is_named(self) -> None:
        def broken(program: Program) -> Program:
            raise KeyError("gone")

        with pytest.raises(PassError, match="pass broken failed: KeyError: 'gone'"):
            run_passes(self.program(), (broken,))

    def test_a_pass_that_changes_the_interface_is_refused(self) -> None:
        def drops_result(program: Program) -> Program:
            module = program.editable()
            module.graph.output_node().args = ((),)
            return program.with_graph(module)

        with pytest.raises(PassError, match="do not match the signature"):
            run_passes(self.program(), (drops_result,))

    def test_a_pass_that_fixes_a_dim_is_refused(self) -> None:
        def fixes(program: Program) -> Program:
            (x,) = program.graph.find_nodes(op="placeholder")
            assert bool(x.meta["val"].shape[0] == 4)
            return program

        with pytest.raises(PassError, match="pass fixes fixed the dim 'n'"):
            run_passes(self.program(), (fixes,))

    def test_all_passes_keep_dims_dynamic(self) -> None:
        model = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout()).eval()
        shapes = {"input": {0: Dim("n", max=8), 2: Dim("length", max=64)}}
        after = run(model, (torch.randn(2, 3, 9),), *PASSES, dynamic_shapes=shapes, other_args=(torch.randn(3, 3, 5),))
        assert [report.name for report in after.reports] == [
            "remove-noops",
            "fold-batch-norm",
            "pack-conv",
            "fuse-epilogue",
            "keep-output-layout",
        ]
        assert operators(after) == ["aotpack.packed_conv.default", "aotpack.to_layout.default"]
