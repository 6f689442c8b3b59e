"""Numbers that a model with a loss returns: of sizes, of arguments, out of the data, constants."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import DYNAMIC, Dim
from aotpack.errors import InputError
from aotpack.export import aot_export
from tests.support.building import Build


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, n: int, f: float, flag: bool) -> dict[str, Any]:
        y = self.linear(x) * f
        return {
            "rows": x.shape[0],  # before the loss
            "loss": (y * y).mean(),
            "columns": x.shape[1],
            "three": 3,
            "none": None,
            "n": n,
            "f": f,
            "flag": flag,
            "sum": 2 * n + x.shape[0],
            "half": x.shape[0] / 2,
            "scaled": f * n,
            "many": x.shape[0] > 3,
            "positive": (x > 0).sum().item(),
            "y": y,
        }


def test_every_kind_of_number(build: Build) -> None:
    torch.manual_seed(0)
    net = Net()
    shapes = {"x": {0: Dim("batch", 1, 9)}, "n": DYNAMIC, "f": DYNAMIC, "flag": DYNAMIC}
    archive = build(net, (torch.randn(5, 4), 3, 1.5, True), mode="joint", dynamic_shapes=shapes)
    for rows, n, f, flag in ((5, 3, 1.5, True), (1, -7, 0.25, False), (9, 0, -2.0, True)):
        x = torch.randn(rows, 4)
        result = archive(x, n, f, flag)
        net.zero_grad()
        expected = net(x, n, f, flag)
        expected["loss"].backward()
        assert list(result["outputs"]) == list(expected)
        for name, value in expected.items():
            actual = result["outputs"][name]
            if isinstance(value, Tensor):
                torch.testing.assert_close(actual, value.detach())
            else:
                assert (actual, type(actual)) == (value, type(value)), name
        torch.testing.assert_close(result["gradients"]["linear.weight"], net.linear.weight.grad)
    with pytest.raises(InputError, match="'batch'"):
        archive(torch.randn(10, 4), 3, 1.5, True)


def test_numbers_in_the_signature() -> None:
    program = aot_export(Net(), (torch.randn(5, 4), 3, 1.5, True), mode="joint")
    kinds = {output.name: output.number for output in program.signature.outputs if output.number}
    assert kinds == {"output.outputs.positive": "int"}, "the others are constants"
