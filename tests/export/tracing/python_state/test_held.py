"""Names of state that is held in buffers."""

from __future__ import annotations

import pytest
import torch

from aotpack.export.tracing.python_state.held import _free

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("cache.k", (), "cache.k"),
        ("cache.k", ("cache.k", "cache.k_2"), "cache.k_3"),
        ("child.weight", (), "child.weight_2"),
        ("child.new", (), "child.new"),
        # What is at the begin of the path is no module.
        ("forward.last", (), "forward_last"),
        ("child.forward.last", ("child_forward_last",), "child_forward_last_2"),
    ],
)
def test_names_are_paths_where_there_is_room(name: str, taken: tuple[str, ...], expected: str) -> None:
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    module.add_module("child", torch.nn.Linear(2, 2))
    assert _free(module, set(taken), name) == expected
