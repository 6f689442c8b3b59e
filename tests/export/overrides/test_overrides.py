"""The table of functions that are overridden while a model is traced. What each computes is tested with its topic."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributions import dirichlet

from aotpack.export import overrides as overrides_package
from aotpack.export.overrides import functions_overridden
from aotpack.export.overrides.table import overrides


def test_every_file_is_in_the_table() -> None:
    files = {path.stem for path in Path(overrides_package.__file__).parent.glob("*.py")} - {"__init__", "table"}
    assert files == set(overrides_package.__all__) - {"functions_overridden"}


def test_a_function_is_respelled_once() -> None:
    def other(input: torch.Tensor, other: torch.Tensor) -> bool:
        return False

    with pytest.raises(ValueError, match="already"):
        overrides(torch.equal)(other)
    with functions_overridden():
        assert torch.equal(torch.ones(2), torch.ones(2))


def test_replacements_call_what_they_replace() -> None:
    x = torch.randn(4, 3, 5)
    mask = torch.rand(2, 4, 3, 5) > 0.5
    calls = (
        lambda: torch.masked_select(x, mask),
        lambda: x[:, 0].narrow(0, torch.tensor(-3), 2),
        lambda: torch.unique(x.round(), dim=-1, return_inverse=True),
        lambda: x.round().unique_consecutive(dim=-1, return_counts=True),
        lambda: torch.cdist(x, x + 1, 2.0),
    )
    for call in calls:
        want = call()
        with functions_overridden():
            got = call()
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_nothing_is_replaced_afterwards() -> None:
    before = dirichlet._Dirichlet
    with functions_overridden():
        assert dirichlet._Dirichlet is not before
    assert dirichlet._Dirichlet is before
    with pytest.raises(RuntimeError), functions_overridden():
        raise RuntimeError
    assert dirichlet._Dirichlet is before
