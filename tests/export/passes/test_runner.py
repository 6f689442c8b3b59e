"""The runner of passes: errors name the pass, and no pass changes the interface or fixes a dim."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from aotpack.errors import PassError
from aotpack.export import aot_export
from aotpack.export.driver.pipeline import PASSES
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import run_passes
from tests.export.pass_checks import operators, run

aten = torch.ops.aten


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
        assert operators(after) == ["aotpack.packed_conv.default", "aotpack.to_layout.default"]
