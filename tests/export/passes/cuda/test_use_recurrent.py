"""The pass that calls the kernels of recurrent layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from aotpack.export.ops.cuda import recurrent
from aotpack.export.passes.cuda.use_gemm import use_gemm
from aotpack.export.passes.cuda.use_recurrent import use_recurrent
from tests.export.pass_checks import calls, count, run

aten = torch.ops.aten


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_layers_and_directions(cell: Any, both: bool, batch_first: bool) -> None:
    model = cell(3, 5, num_layers=2, bias=both, bidirectional=both, batch_first=batch_first).eval()
    shapes = {"input": {0 if batch_first else 1: Dim("rows", max=64)}}
    after = run(model, (torch.randn(4, 4, 3),), use_recurrent, dynamic_shapes=shapes)
    found = calls(after, recurrent.LSTM if cell is nn.LSTM else recurrent.GRU)
    assert [call.args[-1] for call in found] == ([False, True] if both else [False]) * 2
    # The inputs of all steps are one product.
    assert count(after, aten.linear.default) == len(found)


def test_products_come_after() -> None:
    after = run(nn.LSTM(3, 5).eval(), (torch.randn(4, 2, 3),), use_recurrent)
    assert count(use_gemm(after), torch.ops.aotpack.cuda_gemm.default) == 1


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (nn.LSTM(3, 4, proj_size=2), None),
        (nn.GRU(3, 4).double(), None),
        (nn.GRU(3, 4), {"input": {0: Dim("steps", max=64)}}),
    ],
    ids=["projection", "double", "dynamic steps"],
)
def test_other_networks_stay(model: nn.Module, shapes: Any) -> None:
    x = torch.randn(5, 2, 3, dtype=next(model.parameters()).dtype)
    after = run(model.eval(), (x,), use_recurrent, dynamic_shapes=shapes)
    assert count(after, recurrent.LSTM, recurrent.GRU) == 0
