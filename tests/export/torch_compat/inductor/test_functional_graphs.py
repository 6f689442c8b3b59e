"""Functional graphs are decomposed without AOTAutograd, into the calls that it would give; others go its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import run_passes
from aotpack.export.torch_compat.inductor.functional_graphs import decomposed, functional_graphs_kept

pytestmark = pytest.mark.torch


class Block(nn.Module):
    """A norm, products, attention, dropout that is off, and a decomposition that makes a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return F.gelu(x), x.std(-1, correction=0)


def table() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def traced(program: Program) -> torch.fx.GraphModule | None:
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    return decomposed(program.graph_module, tuple(inputs), table())


def through_autograd(program: Program) -> torch.fx.GraphModule:
    from torch._functorch.aot_autograd import aot_export_module

    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    graph, _ = aot_export_module(program.graph_module, inputs, trace_joint=False, decompositions=table())
    assert isinstance(graph, torch.fx.GraphModule)
    return graph


def calls(graph: torch.fx.GraphModule) -> Counter[str]:
    return Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function")


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_same_calls_as_autograd_records(dynamic: bool) -> None:
    model, x = Block().eval(), torch.randn(2, 6, 16)
    shapes = ({0: Dim("batch", max=64), 1: Dim("length", max=128)},) if dynamic else None
    program = aot_export(model, (x,), dynamic_shapes=shapes)
    found = traced(program)
    assert found is not None
    assert calls(found) == calls(through_autograd(program))
    # Names and values of weights are those of the program.
    assert {n.target for n in found.graph.find_nodes(op="get_attr")} >= {"qkv.weight", "norm.bias"}
    for node in found.graph.nodes:
        assert node.op == "output" or "val" in node.meta
    arguments = (*x.shape[:2], x)[-len(list(found.graph.find_nodes(op="placeholder"))) :]
    for result, expected in zip(found(*arguments), model(x), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_indexing_by_numbers(dynamic: bool) -> None:
    def model(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        # The second reads what a decomposition returns.
        return x[:, i, None] + 1, F.layer_norm(x, (16,))[i[:, None], i[None, :4]]

    x, i = torch.randn(5, 6, 16), torch.tensor([3, 0, 1, 4])
    program = aot_export(model, (x, i), dynamic_shapes=({0: Dim("rows", min=5, max=64)}, None) if dynamic else None)
    found = traced(program)
    assert found is not None
    assert calls(found) == calls(through_autograd(program))
    arguments = ([x.shape[0]] if dynamic else []) + [x, i]
    for result, expected in zip(
        found(*arguments[-len(found.graph.find_nodes(op="placeholder")) :]), model(x, i), strict=True
    ):
        torch.testing.assert_close(result, expected)


def test_places_in_the_model_survive() -> None:
    found = traced(aot_export(Block().eval(), (torch.randn(2, 6, 16),)))
    assert found is not None
    products = [n for n in found.graph.nodes if n.target in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)]
    assert products and all("qkv" in n.meta["stack_trace"] or "out" in n.meta["stack_trace"] for n in products)


def test_strides_that_a_decomposition_changes_reach_later_calls() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.layer_norm(x.permute(0, 2, 1), (4,))
        return y, (y + 1).flatten()

    x = torch.randn(3, 4, 5)
    program = aot_export(model, (x,))
    found = traced(program)
    assert found is not None
    expected = {n.name: n.meta["val"] for n in through_autograd(program).graph.nodes if n.op == "call_function"}
    described = {n.name: n.meta["val"] for n in found.graph.nodes if n.op == "call_function"}
    assert [(v.shape, v.stride()) for v in described.values() if isinstance(v, Tensor)] == [
        (v.shape, v.stride()) for v in expected.values() if isinstance(v, Tensor)
    ]


class Writes(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * 2


def _as_many_places(x: Tensor, y: Tensor) -> Tensor:
    places = x.nonzero()
    torch._check(places.shape[0] == y.shape[0])
    return places + y[:, None]


@pytest.mark.parametrize(
    ("model", "args"),
    [
        pytest.param(Writes(), (torch.ones(3),), id="state"),
        pytest.param(lambda x: x.nonzero(), (torch.ones(3),), id="sizes from data"),
        pytest.param(_as_many_places, (torch.ones(3), torch.ones(3)), id="sizes from data that a check equates"),
        pytest.param(lambda x: x * x.sum().item(), (torch.ones(3),), id="numbers from data"),
        pytest.param(lambda x: x[x > 0], (torch.ones(3),), id="a mask"),
    ],
)
def test_other_graphs_go_through_autograd(model: Any, args: tuple[Tensor, ...]) -> None:
    assert traced(aot_export(model, args)) is None


def test_operators_of_triton_kernels_go_through_autograd() -> None:
    pytest.importorskip("triton")
    from aotpack.export.passes.cuda.use_attention import use_attention

    program = aot_export(F.scaled_dot_product_attention, (torch.randn(1, 2, 5, 8),) * 3)
    assert traced(program) is not None
    after = run_passes(program, (use_attention,))
    assert after is not program
    assert traced(after) is None


def test_a_decomposition_that_writes_goes_through_autograd() -> None:
    def writes(x: Tensor) -> Tensor:
        return torch.zeros_like(x).add_(x).neg_()

    program = aot_export(lambda x: torch.sinc(x) * 2, (torch.randn(3),))
    inputs = tuple(node.meta["val"] for node in program.graph.find_nodes(op="placeholder"))
    (target,) = [n.target for n in program.graph.nodes if "sinc" in str(n.target)]
    assert decomposed(program.graph_module, inputs, {target: writes}) is None
    assert decomposed(program.graph_module, inputs, {target: lambda x: -x}) is not None


def test_torch_is_as_it_was() -> None:
    from torch._inductor import compile_fx

    before = compile_fx._unlift_graph
    with functional_graphs_kept():
        assert compile_fx._unlift_graph is not before
    assert compile_fx._unlift_graph is before
