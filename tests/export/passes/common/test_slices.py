"""The pass that spells out slices whose bounds only the capture knows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import aotpack
from aotpack import Dim
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.passes.common.slices import cut_at_bounds
from tests.export.pass_checks import count, run

aten = torch.ops.aten


def _doubled(part: Tensor) -> Tensor:
    """The answer is a condition of the archive, from which the bounds of the slice follow."""
    return part * 2 if part.shape[0] > 1 else part


def _from_the_start(x: Tensor) -> Tensor:
    return _doubled(x[: x.shape[0] - x.shape[0] % 3])


def _from_the_middle(x: Tensor) -> Tensor:
    return _doubled(x[2 : x.shape[0] - x.shape[0] % 3])


def _of_columns(x: Tensor) -> Tensor:
    return _doubled(x.t()[:, 2 : x.shape[0] - x.shape[0] % 3].t())


@pytest.mark.parametrize("function", [_from_the_start, _from_the_middle, _of_columns])
def test_bounds_that_the_capture_found_are_those_of_a_split(function: Callable[..., Any], tmp_path: Path) -> None:
    shapes = ({0: Dim("m")},)
    for rows in (7, 8, 30):
        after = run(
            function, (torch.randn(9, 3),), cut_at_bounds, dynamic_shapes=shapes, other_args=(torch.randn(rows, 3),)
        )
    assert (count(after, aten.slice.Tensor), count(after, operator.getitem)) == (0, 1)
    program = aot_export(function, (torch.randn(9, 3),), dynamic_shapes=shapes)
    build_archive(program, tmp_path / "m.aotpack", options=BuildOptions(opt_level=1, jobs=1))
    loaded = aotpack.load(tmp_path / "m.aotpack")
    for rows in (7, 8, 30):
        x = torch.randn(rows, 3)
        assert torch.equal(torch.from_numpy(loaded(x.numpy())), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1:-1],
        lambda x: x[: x.shape[0] // 2],
        lambda x: x[1 : x.shape[0] : 2],
        lambda x: x[2:5],
        lambda x: x[x.shape[0] // 2 :],
    ],
)
def test_bounds_that_are_known_stay(function: Callable[..., Any]) -> None:
    args = (torch.randn(9, 3),)
    after = run(function, args, cut_at_bounds, dynamic_shapes=({0: Dim("m", min=5)},), other_args=(torch.randn(6, 3),))
    assert count(after, aten.slice.Tensor) == 1
