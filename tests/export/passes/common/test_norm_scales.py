"""The pass that makes scales and shifts of batch norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export.driver.pipeline import PASSES
from aotpack.export.passes.common.batch_norm import fold_batch_norm
from aotpack.export.passes.common.norm_scales import scale_batch_norm
from aotpack.export.passes.patterns.batch_norms import BATCH_NORMS
from tests.export.pass_checks import attributes, batch_norm, count, operators, run

aten = torch.ops.aten


class TestScaleBatchNorm:
    @pytest.mark.parametrize("affine", [True, False])
    @pytest.mark.parametrize("sizes", [(5, 6), (2, 6, 9), (2, 6, 5, 4), (2, 6, 3, 2, 4)])
    def test_every_norm_becomes_a_scale_and_a_shift(self, sizes: tuple[int, ...], affine: bool) -> None:
        model = nn.Sequential(nn.Tanh(), batch_norm(len(sizes), affine=affine)).eval()
        after = run(model, (torch.randn(sizes),), fold_batch_norm, scale_batch_norm)
        assert operators(after) == ["aten.tanh.default", "aten.mul.Tensor", "aten.add.Tensor"]
        assert attributes(after) == ["_1_scale", "_1_shift"]
        assert {"1.running_mean", "1.running_var"} <= set(after.constant_info("_1_scale").sources)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("mixed", [False, True])
    def test_halves_are_normalised_in_single_precision(self, dtype: torch.dtype, mixed: bool) -> None:
        norm = batch_norm(4)
        # A mean that is large beside the deviation: what half precision would lose.
        norm.running_mean.add_(100)
        model = nn.Sequential(nn.Identity(), norm if mixed else norm.to(dtype)).eval()
        x = (torch.randn(2, 6, 5, 4) + 100).to(dtype)
        after = run(model, (x,), scale_batch_norm, tolerance=1e-2)
        assert count(after, *BATCH_NORMS) == 0
        assert {n.meta["val"].dtype for n in after.graph.find_nodes(op="get_attr")} == {torch.float32}
        (result,) = after.graph.output_node().args[0]
        assert result.meta["val"].dtype == dtype

    def test_inputs_in_other_layouts(self) -> None:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = batch_norm(4)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
                return self.norm(x[:, :6]), self.norm(x.permute(0, 3, 1, 2)[:, 1:])

        after = run(Model().eval(), (torch.randn(2, 7, 5, 7),), scale_batch_norm)
        assert count(after, *BATCH_NORMS) == 0

    def test_training_stays(self) -> None:
        model = nn.Sequential(nn.Tanh(), nn.BatchNorm2d(6, track_running_stats=False))
        assert count(run(model.eval(), (torch.randn(2, 6, 5, 5),), scale_batch_norm), *BATCH_NORMS) == 1

    def test_dense_blocks(self) -> None:
        class Dense(nn.Module):
            """DenseNet's block: norm, relu, convolution of everything before; a pooled transition; a last norm."""

            def __init__(self) -> None:
                super().__init__()
                self.norms = nn.ModuleList([batch_norm(4, channels=c) for c in (6, 10, 14)])
                self.narrow = nn.ModuleList([nn.Conv2d(c, 8, 1, bias=False) for c in (6, 10, 14)])
                self.between = nn.ModuleList([batch_norm(4, channels=8) for _ in range(3)])
                self.wide = nn.ModuleList([nn.Conv2d(8, 4, 3, padding=1, bias=False) for _ in range(3)])
                self.last = batch_norm(4, channels=18)

            def forward(self, x: Tensor) -> Tensor:
                for norm, narrow, between, wide in zip(self.norms, self.narrow, self.between, self.wide, strict=True):
                    y = F.relu(between(narrow(F.relu(norm(x)))))
                    x = torch.cat([x, wide(y)], 1)
                return F.avg_pool2d(F.relu(self.last(x)), 2)

        shapes = {"x": {0: Dim("n"), 2: Dim("h", min=4), 3: Dim("w", min=4)}}
        x, other = torch.randn(2, 6, 8, 6), torch.randn(3, 6, 5, 9)
        after = run(Dense().eval(), (x,), *PASSES, dynamic_shapes=shapes, other_args=(other,))
        assert count(after, *BATCH_NORMS) == 0
        # Four norms stay in front of what they feed; the three behind a convolution are in its weights.
        assert count(after, aten.mul.Tensor) == 4
