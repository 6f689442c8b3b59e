"""Sums of products of several tensors: dims stay dynamic where opt_einsum is installed, as it is for tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from tests.export.pass_checks import run

EINSUM: dict[str, Callable[..., Tensor]] = {
    "equation": lambda x, w, y: torch.einsum("bi,ij,bj->b", x, w, y),
    "list": lambda x, w, y: torch.einsum("bi,ij,bj->b", [x, w, y]),
    "subscripts": lambda x, w, y: torch.einsum(x, [0, 1], w, [1, 2], y, [0, 2], [0]),
    "two": lambda x, w, y: torch.einsum("bi,bi->b", x @ w, y),
}


@pytest.mark.parametrize("form", EINSUM)
def test_dims_stay_dynamic(form: str) -> None:
    assert torch.backends.opt_einsum.is_available()
    args, other = ((torch.randn(n, 6), torch.randn(6, 5), torch.randn(n, 5)) for n in (3, 8))
    shapes = {name: ({0: Dim("b", min=1)} if name != "w" else None) for name in ("x", "w", "y")}
    after = run(EINSUM[form], args, dynamic_shapes=shapes, other_args=other)
    (dim,) = after.signature.dims
    assert (dim.min, dim.max) == (1, None)
    assert not after.checks


def test_fixed_sizes_keep_the_order_that_torch_chooses() -> None:
    args = torch.randn(2, 6), torch.randn(6, 5), torch.randn(5, 7)
    run(lambda x, w, y: torch.einsum("bi,ij,jk->bk", x, w, y), args)
