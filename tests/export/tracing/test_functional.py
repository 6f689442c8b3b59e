"""Which programs are traced once: those whose operators in place can become others by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from aotpack.export import aot_export
from aotpack.export.ir.regions import all_nodes


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """The programs that are traced a second time."""
    found: list[ExportedProgram] = []
    run = ExportedProgram.run_decompositions

    def noting(self: ExportedProgram, *args: Any) -> Any:
        found.append(self)
        return run(self, *args)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", noting)
    return found


@pytest.mark.parametrize("dropout", [nn.Dropout, nn.Dropout1d], ids=lambda each: each.__name__)
def test_dropout_in_place_outside_of_training(dropout: type[nn.Module], traces: list[ExportedProgram]) -> None:
    # The dropout's input is a view, and another one of the same memory is returned.
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.dropout = nn.Linear(8, 8), dropout(0.5, inplace=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.linear(x)
            return self.dropout(y.view(2, 4, 8)) * 2, y

    model, x = Model().eval(), torch.randn(2, 4, 8)
    program = aot_export(model, (x,))
    assert not traces
    assert not any("dropout" in str(node.target) for node in all_nodes(program.graph_module))
    for got, expected in zip(program.graph_module(x), model(x), strict=True):
        torch.testing.assert_close(got, expected)


def test_dropout_in_place_in_training_is_traced_again(traces: list[ExportedProgram]) -> None:
    aot_export(nn.Sequential(nn.Linear(8, 8), nn.Flatten(), nn.Dropout(0.5, inplace=True)), (torch.randn(2, 4, 8),))
    assert traces


def test_dropout_operators_by_keywords_outside_of_training(traces: list[ExportedProgram]) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.dropout_(x + 1, p=0.5, train=False) * 2

    x = torch.randn(3, 4)
    program = aot_export(Model(), (x,))
    assert not traces
    torch.testing.assert_close(program.graph_module(x), ((x + 1) * 2,))
