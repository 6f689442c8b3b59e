"""The pipeline: views, layouts of results, the runner."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.errors import PassError
from aotpack.export import aot_export, ops
from aotpack.export.driver.pipeline import PASSES
from aotpack.export.ir.program import Program
from aotpack.export.passes.cpu.keep_output_layout import keep_output_layout
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.cpu.views_to_reshapes import views_to_reshapes
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import calls, count, operators, run

aten = torch.ops.aten


class TestViews:
    def test_views_become_reshapes(self) -> None:
        after = run(lambda x: (x + 1).view(6).view(-1, 2) * 2, (torch.randn(2, 3),), views_to_reshapes)
        assert (count(after, aten.view.default), count(after, aten.reshape.default)) == (0, 2)

    def test_a_view_over_a_packed_convolution_reads_in_the_order_of_dims(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 3)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                y = self.conv(x)
                return y.view(2, -1), y.as_strided((2, 5), (36, 2), 1)

        after = run(Model().eval(), (torch.randn(2, 3, 5, 5),), views_to_reshapes, pack_conv)
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
            "canonicalize",
            "remove-dropout",
            "fold-batch-norm",
            "pack-conv",
            "fuse-epilogue",
            "assign-layouts",
        ]
        layout = "aotpack.to_layout.default"
        assert operators(after) == [layout, "aotpack.packed_conv.default", layout]
