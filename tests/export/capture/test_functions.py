"""Plain functions as models: their signatures; and what no archive holds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export


def _scaled(x: Tensor, *, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    return x * scale.sum() if mask is None else x * mask


def test_sizes_of_keyword_only_arguments_vary() -> None:
    x = torch.randn(3, 4)
    shapes = {"x": {0: Dim("n")}, "scale": {0: Dim("m")}}
    program = aot_export(_scaled, (x,), {"scale": torch.rand(2)}, dynamic_shapes=shapes)
    assert [i.name for i in program.signature.inputs] == ["x", "scale"]
    assert [str(dim.name) for dim in program.signature.dims] == ["n", "m"]
    # In the caller's order, and without those that have defaults.
    arguments = {"mask": torch.rand(3, 4), "scale": torch.rand(2)}
    program = aot_export(_scaled, (x,), arguments, dynamic_shapes={"x": {0: "n"}, "mask": {0: "n"}})
    assert {i.name for i in program.signature.inputs} >= {"x", "mask"}


@pytest.mark.parametrize(
    "function",
    [torch.sin, functools.partial(_scaled, scale=torch.ones(2)), lambda *args: args[0], lambda x, y=2: x * y],
    ids=["builtin", "partial", "variadic", "default"],
)
def test_functions_of_any_kind(function: Callable[..., Any]) -> None:
    assert len(aot_export(function, (torch.randn(3),)).signature.inputs) == 1


@pytest.mark.parametrize(
    ("function", "sparse"),
    [
        (lambda x: x.to_sparse(), False),
        (lambda x: x.to_sparse().to_dense() * 2, False),
        (lambda x: x.to_dense(), True),
    ],
    ids=["result", "inside", "input"],
)
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_sparse_tensors_are_refused(function: Callable[[Tensor], Tensor], sparse: bool, layout: torch.layout) -> None:
    x = torch.eye(3)
    with pytest.raises(CaptureError, match="sparse"):
        aot_export(function, (x.to_sparse(layout=layout) if sparse else x,))
