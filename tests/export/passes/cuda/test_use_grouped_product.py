"""The pass that calls the kernels of grouped products."""

from __future__ import annotations

import torch
from torch import Tensor

import aotpack
from aotpack.export.ops import grouped_mm, grouped_outer
from aotpack.export.passes.cuda.use_grouped_product import use_grouped_product
from tests.export.pass_checks import operators, run


def _products(x: Tensor, w: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    return grouped_mm(x, w, ends), grouped_outer(x.t(), x, ends)


def _product(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    return grouped_mm(x, w, ends)


def test_both_products() -> None:
    args = (torch.randn(8, 3), torch.randn(2, 3, 5), torch.tensor([3, 8]))
    shapes = {"x": {0: aotpack.Dim("rows", 0, 64)}, "w": None, "ends": None}
    after = operators(run(_products, args, use_grouped_product, dynamic_shapes=shapes))
    assert {"aotpack.cuda_grouped_mm.default", "aotpack.cuda_grouped_outer.default"} <= set(after)
    assert not {"aotpack.grouped_mm.default", "aotpack.grouped_outer.default"} & set(after)


def test_products_of_integers_keep_the_operator() -> None:
    args = (torch.ones(8, 3, dtype=torch.int64), torch.ones(2, 3, 5, dtype=torch.int64), torch.tensor([3, 8]))
    assert operators(run(_product, args, use_grouped_product)) == ["aotpack.grouped_mm.default"]


def test_a_dynamic_number_of_groups_keeps_the_operator() -> None:
    groups = aotpack.Dim("groups", 1, 64)
    args = (torch.randn(8, 3), torch.randn(2, 3, 5), torch.tensor([3, 8]))
    shapes = {"x": None, "w": {0: groups}, "ends": {0: groups}}
    after = operators(run(_product, args, use_grouped_product, dynamic_shapes=shapes))
    assert after == ["aotpack.grouped_mm.default"]
