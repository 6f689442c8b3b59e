"""The code is the same without the kernels that TorchInductor throws away, and less of it is generated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.torch_compat.inductor import codegen
from aotpack.export.torch_compat.inductor.codegen import GeneratedCode, generate


def _norms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = F.layer_norm(x, (x.shape[-1],))
    return y, F.layer_norm(F.gelu(y) + x, (x.shape[-1],)), y.softmax(-1)


def _images(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.group_norm(x, 2), x.permute(0, 2, 3, 1).contiguous() + 1, F.max_pool2d(x, 3, 2, 1), x.softmax(1)


def _lookup(x: torch.Tensor) -> torch.Tensor:
    return _norms(torch.arange(64.0).reshape(8, 8).repeat(1, 4)[x])[1]


def _tiles(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of columns of matrices: tiles of two loops, of which the inner one reduces."""
    rows = torch.sin(x.mT + 1)
    return rows.contiguous(), rows.sum(2), rows - rows.amax(2, keepdim=True)


CASES: dict[str, tuple[Callable[..., Any], torch.Tensor, Any]] = {
    "whole vectors": (_norms, torch.randn(24, 64), None),
    "tails": (_norms, torch.randn(24, 67), None),
    "fewer than a vector": (_norms, torch.randn(3, 5), None),
    "many rows": (_norms, torch.randn(4, 300, 48), None),
    "dynamic": (_norms, torch.randn(24, 64), {"x": {0: Dim("rows", max=999), 1: Dim("columns", max=999)}}),
    "bf16": (_norms, torch.randn(24, 64).bfloat16(), None),
    "float64": (_norms, torch.randn(24, 64).double(), None),
    "images": (_images, torch.randn(2, 16, 32, 32), None),
    "images with tails": (_images, torch.randn(2, 6, 13, 11), None),
    **{
        f"tiles of {rows} rows and {columns} columns": (_tiles, torch.randn(2, columns, rows), None)
        for rows in (32, 19)
        for columns in (32, 19)
    },
    "tiles of any number of rows": (_tiles, torch.randn(2, 32, 5), {"x": {2: Dim("rows", max=999)}}),
    "tiles of any size": (_tiles, torch.randn(2, 7, 5), {"x": {1: Dim("columns"), 2: Dim("rows")}}),
    "indices": (_lookup, torch.tensor([1, 5, 2]), None),
}


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def _generated(case: str, target: str) -> tuple[GeneratedCode, int]:
    """The code of a case, and how often the body of a loop was interpreted for it."""
    from torch._inductor.loop_body import LoopBody

    function, x, dims = CASES[case]
    program = aot_export(_Function(function), (x,), dynamic_shapes=dims)
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    calls, interpret = [0], LoopBody.__call__

    def counted(self: Any, *args: Any) -> Any:
        calls[0] += 1
        return interpret(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopBody, "__call__", counted)
        return generate(program.graph_module, inputs, target), calls[0]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
@pytest.mark.parametrize("case", CASES)
def test_the_code_is_the_same(case: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _generated(case, target)
    ours, few = _generated(case, target)
    monkeypatch.setattr(codegen, "without_discarded_kernels", contextlib.nullcontext)
    theirs, many = _generated(case, target)
    assert ours.wrapper == theirs.wrapper
    assert ours.kernels == theirs.kernels
    if case in ("whole vectors", "many rows") and target != "x86-64-v2":
        assert few < many * 0.9
