"""AOTAutograd's partitioner, as the adapter calls it."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotpack.export.torch_compat.partitioner import saved_values

pytestmark = pytest.mark.torch


def _joint() -> torch.fx.GraphModule:
    def call(weight: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.sin(x @ weight)
        result = hidden.exp()
        before = gradient * result * torch.cos(x @ weight)
        return result, x.t() @ before, before @ weight.t()

    traced = make_fx(call, tracing_mode="fake")(*(torch.randn(4, 4) for _ in range(3)))
    for node, name in zip(traced.graph.find_nodes(op="placeholder"), NAMES, strict=True):
        node.name = node.target = name
    return traced


NAMES = ("primals_0", "primals_1", "tangents_0")


def test_the_interface_is_as_the_adapter_expects() -> None:
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    parameters = inspect.signature(min_cut_rematerialization_partition).parameters
    assert {"num_fwd_outputs", "static_lifetime_input_indices"} <= parameters.keys()
    assert config.activation_memory_budget == 1.0


def test_values_are_nodes_of_the_graph() -> None:
    names = {node.name for node in _joint().graph.nodes}
    kept = {budget: saved_values(_joint(), 1, [0], budget) for budget in (1.0, 0.0)}
    assert all(set(each) <= names for each in kept.values())
    assert set(kept[0.0]) <= set(NAMES)
    assert set(kept[1.0]) - set(NAMES)
