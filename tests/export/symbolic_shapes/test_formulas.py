"""Ints that must be what the dims of other inputs give: declared as such, or fixed by the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotpack
from aotpack import DYNAMIC, Dim
from aotpack.archive import ArchiveReader
from aotpack.cli.arrays import random_inputs
from aotpack.errors import CaptureError, InputError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.spec import DimRef, Expr
from tests.support.building import Build

BATCH = Dim("batch", 1, 6)


def pairs(x: Tensor, n: int, k: int) -> Tensor:
    return torch.arange(n) * k + x.sum()


def test_multiples_and_sums(build: Build) -> None:
    shapes = {"x": {0: BATCH}, "n": 2 * BATCH, "k": BATCH - 3}
    archive = build(pairs, (torch.randn(4, 3), 8, 1), dynamic_shapes=shapes)
    signature = archive.signature
    assert str(signature).startswith("forward(x: float32[batch, 3], n: int[2*batch], k: int[batch-3])")
    assert [value.formula for value in signature.inputs] == [None, DimRef("batch", 2), DimRef("batch", 1, -3)]
    for batch in range(1, 7):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(archive(x, 2 * batch, batch - 3), pairs(x, 2 * batch, batch - 3))
    for n, k, message in (
        (7, 1, r"input 'n' must be 2\*batch = 8 \('batch' = 4 by input 'x'\), got 7"),
        (-8, 1, "got -8"),
        (8, 4, r"input 'k' must be batch - 3 = 1 \('batch' = 4 by input 'x'\), got 4"),
    ):
        with pytest.raises(InputError, match=message):
            archive(torch.randn(4, 3), n, k)
    with pytest.raises(InputError, match=r"\('batch'\) must be in \[1, 6\], got 7"):
        archive(torch.randn(7, 3), 14, 4)
    with ArchiveReader(archive.path) as reader:
        made_up = random_inputs(reader.manifest.entries[0], {"batch": 5})
    assert [int(np.asarray(value)) for value in made_up[1:]] == [10, 2]


def test_multiples_of_a_dim_with_multiples(build: Build) -> None:
    rows = Dim("rows", 4, 16, multiple_of=4)
    archive = build(pairs, (torch.randn(8, 2), 17, 3), dynamic_shapes={"x": {0: rows}, "n": rows * 2 + 1, "k": DYNAMIC})
    for size in (4, 16):
        x = torch.randn(size, 2)
        torch.testing.assert_close(archive(x, 2 * size + 1, -5), pairs(x, 2 * size + 1, -5))
    with pytest.raises(InputError, match=r"must be 2\*rows \+ 1 = 9"):
        archive(torch.randn(4, 2), 8, 0)


def test_an_int_gives_the_dim(build: Build) -> None:
    m = Dim("m", -4, 9)
    archive = build(
        lambda x, m, n: x * m + n, (torch.randn(3), 2, 7), dynamic_shapes={"x": None, "m": m, "n": 3 * m + 1}
    )
    x = torch.randn(3)
    for value in (-4, 0, 9):
        torch.testing.assert_close(archive(x, value, 3 * value + 1), x * value + 3 * value + 1)
    with pytest.raises(InputError, match=r"input 'n' must be 3\*m \+ 1 = -11 \('m' = -4 by input 'm'\), got 11"):
        archive(x, -4, 11)


def test_what_the_model_fixes(build: Build) -> None:
    def area(x: Tensor, n: int) -> Tensor:
        return x.reshape(n) * 2

    archive = build(
        area, (torch.randn(4, 3), 12), dynamic_shapes={"x": {0: BATCH, 1: Dim("width", 1, 5)}, "n": DYNAMIC}
    )
    formula = archive.signature.inputs[1].formula
    assert isinstance(formula, Expr)
    for rows, columns in ((1, 1), (6, 5), (2, 3)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(archive(x, rows * columns), area(x, rows * columns))
    with pytest.raises(InputError, match=r"input 'n' must be batch\*width = 6 .*, got 5"):
        archive(torch.randn(2, 3), 5)


def test_variants(tmp_path: Path, cache_dir: Path) -> None:
    shapes = {"x": {0: BATCH}, "n": 2 * BATCH, "k": DYNAMIC}
    program = aot_export(pairs, (torch.randn(4, 3), 8, 1), dynamic_shapes=shapes, variants=[{"batch": 1}, {}])
    path = tmp_path / "pairs.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.load(path, num_threads=1)
    assert archive.variants == ["batch=1", "general"]
    for batch in (1, 2, 6):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(archive(x, 2 * batch, 7), pairs(x, 2 * batch, 7))
        with pytest.raises(InputError, match=f"got {2 * batch + 1}"):
            archive(x, 2 * batch + 1, 7)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": None, "n": 2 * BATCH, "k": None}, "must be 2[*]batch in each call, but no input determines 'batch'"),
        ({"x": {0: BATCH}, "n": 3 * BATCH, "k": None}, "is 8 in the example call, which is not 3[*]batch"),
        ({"x": {0: BATCH}, "n": BATCH + 3, "k": None}, "so 'batch' is 5, but 4"),
    ],
    ids=["no source", "not whole", "example"],
)
def test_wrong_declarations(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        aot_export(pairs, (torch.randn(4, 3), 8, 1), dynamic_shapes=shapes)
