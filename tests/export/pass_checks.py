"""What tests of captures and passes share: a graph, as captured or after passes, answers as eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from aotpack.export import aot_export
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import Step, run_passes
from aotpack.export.tracing.state import state_put_back
from tests.export.conftest import assert_close, in_double


class Weights(torch.nn.Module):
    """A function of tensors and of parameters `w0`, `w1`, …"""

    def __init__(self, function: Callable[..., Any], *weights: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = [f"w{i}" for i in range(len(weights))]
        for name, weight in zip(self.names, weights, strict=True):
            self.register_parameter(name, torch.nn.Parameter(weight))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *(getattr(self, name) for name in self.names))


def batch_norm(dim: int, *, affine: bool = True, channels: int = 6) -> torch.nn.Module:
    """A norm of values with `dim` dims, with random statistics and parameters."""
    norm: torch.nn.Module = {
        2: torch.nn.BatchNorm1d,
        3: torch.nn.BatchNorm1d,
        4: torch.nn.BatchNorm2d,
        5: torch.nn.BatchNorm3d,
    }[dim](channels, eps=1e-2, affine=affine)
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        if affine:
            norm.weight.normal_()
            norm.bias.normal_()
    return norm


def run(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    *passes: Step,
    dynamic_shapes: Any = None,
    other_args: Sequence[Any] | None = None,
    tolerance: float = 1e-5,
) -> Program:
    """The program after `passes`, whose graph has answered as eager does in double, for `args` and `other_args`."""
    before = aot_export(model, tuple(args), dynamic_shapes=dynamic_shapes)
    text = str(before.graph)
    after = run_passes(before, passes)
    assert str(before.graph) == text, "a pass changed the program that it was given"
    if before.reference is not None:
        eager = copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model
        for call in (args, other_args):
            if call is None:
                continue
            with torch.no_grad(), state_put_back(after.graph_module):
                got = after.runnable()(*pytree.tree_leaves(list(call)))
                expected = eager(*in_double(tuple(call)))
            assert_close(got, expected, tolerance)
    return after


def count(program: Program, *targets: Any) -> int:
    """Calls of these operators."""
    return sum(node.op == "call_function" and node.target in targets for node in program.graph.nodes)


def operators(program: Program) -> list[str]:
    """The operators that the graph calls, in order."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def calls(program: Program, target: Any) -> list[torch.fx.Node]:
    """The calls of an operator, in order."""
    return list(program.graph.find_nodes(op="call_function", target=target))


def attributes(program: Program) -> list[str]:
    """Names of the constants that the graph reads, each once, in order."""
    return list(dict.fromkeys(str(node.target) for node in program.graph.find_nodes(op="get_attr")))


def replayed(model: torch.nn.Module, *calls: tuple[torch.Tensor, ...], **options: Any) -> Program:
    """Captures a model, and compares the graph with eager, call after call."""
    eager = copy.deepcopy(model)
    program = aot_export(model, calls[0], **options)
    graph = program.runnable()
    for args in calls:
        with torch.no_grad():
            wanted = pytree.tree_leaves(eager(*args))
            assert_close([torch.as_tensor(value) for value in graph(*args)], wanted, 1e-5)
    return program
