"""A graph that was traced is run on fake tensors once more only where it has changed, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from aotpack.export import aot_export
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.torch_compat.known_values import KnownValues, QuickProp
from aotpack.export.torch_compat.tensors import storage_id

pytestmark = pytest.mark.torch
aten = torch.ops.aten


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(x))
        return (y.flatten(2).transpose(1, 2) * 2).sum(-1)


def graph_of(*, dynamic: bool = False) -> torch.fx.GraphModule:
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    shapes: Any = ({0: torch.export.Dim("batch", min=1)},) if dynamic else None
    return aot_export(Model().eval(), (x,), dynamic_shapes=shapes).graph_module


def run(graph: torch.fx.GraphModule, kind: Callable[..., Any]) -> list[str]:
    """Runs it, and returns the names of the operators that were computed."""
    called: list[str] = []

    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    mode = fake_mode(graph)
    mode.allow_non_fake_inputs = True
    running = kind(graph, mode=mode)
    original = running.call_function

    def call_function(target: Any, args: Any, kwargs: Any) -> Any:
        called.append(target.__name__)
        return original(target, args, kwargs)

    running.call_function = call_function
    running.propagate_dont_convert_inputs(*values)
    return called


def quick(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    known = KnownValues()
    for node in graph.graph.nodes:
        known.add(node)
    return partial(QuickProp, known=known)


def described(graph: torch.fx.GraphModule) -> list[tuple[Any, ...]]:
    values = [node.meta["val"] for node in graph.graph.nodes if node.op == "call_function"]
    return [(v.shape, v.stride(), v.dtype, v.device) for v in values]


def test_calls_that_were_traced_are_not_run() -> None:
    graph, other = graph_of(), graph_of()
    computed = run(graph, quick(graph))
    assert "conv2d.default" not in computed
    assert "relu.default" not in computed
    # Its result may be memory of its argument.
    assert "transpose.int" in computed
    run(other, FakeTensorProp)
    assert described(graph) == described(other)


def test_what_follows_a_change_is_run() -> None:
    graph, other = graph_of(), graph_of()
    kind = quick(graph)
    for each in (graph, other):
        (conv,) = each.graph.find_nodes(op="call_function", target=aten.conv2d.default)
        with each.graph.inserting_after(conv):
            copy = each.graph.call_function(aten.clone.default, (conv,), {"memory_format": torch.contiguous_format})
        conv.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
    computed = run(graph, kind)
    assert {"clone.default", "relu.default"} <= set(computed)
    assert "conv2d.default" not in computed
    run(other, FakeTensorProp)
    assert described(graph) == described(other)
    (relu,) = graph.graph.find_nodes(op="call_function", target=aten.relu.default)
    assert relu.meta["val"].is_contiguous()


def test_values_that_share_memory_are_made_anew() -> None:
    graph = graph_of()
    kind = quick(graph)
    conv, relu = (
        graph.graph.find_nodes(op="call_function", target=target)[0]
        for target in (aten.conv2d.default, aten.relu.default)
    )
    relu.meta["val"] = conv.meta["val"]
    run(graph, kind)
    assert storage_id(relu.meta["val"]) != storage_id(conv.meta["val"])


def test_sizes_that_vary_are_run() -> None:
    graph = graph_of(dynamic=True)
    assert {"conv2d.default", "relu.default"} <= set(run(graph, quick(graph)))


def test_calls_alike_are_run_once() -> None:
    x = torch.randn(4)
    graph = aot_export(lambda x: x.sin().cos().sin().cos(), (x,)).graph_module
    assert run(graph, QuickProp) == ["sin.default", "cos.default"]
    values = [storage_id(node.meta["val"]) for node in graph.graph.nodes if node.op == "call_function"]
    assert len(set(values)) == 4
