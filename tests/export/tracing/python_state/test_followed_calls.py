"""Which globals belong to the state of a model: those that its own functions name."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor

from aotpack.export.tracing.python_state.snapshot import watching
from aotpack.export.tracing.state import state_put_back

pytestmark = pytest.mark.torch

CALLS = [0]


class Counts(torch.nn.Module):
    """It has a line of its own read, as torch does for the stacks of what it records."""

    def forward(self, x: Tensor) -> Tensor:
        CALLS[0] += 1
        return x + len(linecache.getline(__file__, 1))


def test_sources_that_were_read_are_no_state() -> None:
    """Python keeps every line of them, which each snapshot went through."""
    model = Counts()
    with watching() as watch, state_put_back(model):
        model(torch.ones(2))
    assert watch.followed
    assert [change.place.label for change in watch.changes] == ["the global 'CALLS' of test_followed_calls.py[0]"]
    assert CALLS == [0]
    modules = {table.owner["__name__"] for table in watch.tables.values()}
    assert __name__ in modules
    assert "linecache" not in modules
