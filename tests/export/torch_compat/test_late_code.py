"""Graph modules whose Python code is generated when it is read or run."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
import torch
import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from aotpack.export import aot_export
from aotpack.export.torch_compat.late_code import code_generated_late

X = torch.tensor([-1.0, 2.0])


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + 1


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.Graph]:
    """The graphs whose code was generated, in order."""
    found: list[torch.fx.Graph] = []
    python_code = torch.fx.Graph.python_code

    def counted(self: torch.fx.Graph, *args: Any, **kwargs: Any) -> Any:
        found.append(self)
        return python_code(self, *args, **kwargs)

    monkeypatch.setattr(torch.fx.Graph, "python_code", counted)
    return found


def negated(module: torch.fx.GraphModule) -> None:
    """Changes the graph: `add` becomes `sub`."""
    (node,) = [node for node in module.graph.nodes if "add" in str(node.target)]
    node.target = torch.sub


def test_code_is_that_of_the_graph_when_it_is_read(generated: list[torch.fx.Graph]) -> None:
    with code_generated_late():
        module = torch.fx.symbolic_trace(Model())
        negated(module)
        module.recompile()
        assert generated == []
        assert "torch.sub" in module.code
    assert generated == [module.graph]
    assert torch.equal(module(X), X - 1)
    assert generated == [module.graph]  # once


def test_modules_outlive_the_capture(generated: list[torch.fx.Graph]) -> None:
    with code_generated_late():
        called, printed, inspected = (torch.fx.symbolic_trace(Model()) for _ in range(3))
    assert generated == []
    assert torch.equal(called(X), X + 1)
    assert "def forward" in str(printed)
    assert list(inspect.signature(inspected.forward).parameters) == ["x"]
    assert list(inspect.signature(type(inspected).forward).parameters) == ["self", "x"]
    assert generated == [called.graph, printed.graph, inspected.graph]


def test_a_module_with_code_is_generated_anew(generated: list[torch.fx.Graph]) -> None:
    module = torch.fx.symbolic_trace(Model())
    assert torch.equal(module(X), X + 1)
    with code_generated_late():
        negated(module)
        module.recompile()
        assert torch.equal(module(X), X - 1)
        assert "sub" in module.code
        assert module._lineno_map is not None or hasattr(module, "_prologue_start")
    assert len(generated) == 2


def test_copies_and_lazy_modules_of_torch_compute() -> None:
    with code_generated_late():
        module = torch.fx.symbolic_trace(Model())
        others = copy.copy(module), copy.deepcopy(module), _LazyGraphModule(module, module.graph)
        lazy = others[2]
        lazy.recompile()
        assert all(torch.equal(other(X), X + 1) for other in others)
    lazy.recompile()
    assert torch.equal(lazy(X), X + 1)
    assert torch.equal(module(X), X + 1)


def test_modules_are_pickled() -> None:
    with code_generated_late():
        # fx does not pickle annotations that are texts, as those of this file are.
        data = pickle.dumps(torch.fx.symbolic_trace(lambda x: x.relu()))
    assert torch.equal(pickle.loads(data)(X), X.relu())


def test_modules_are_traced_and_freed() -> None:
    with code_generated_late():
        module = torch.fx.symbolic_trace(Model())
        again = torch.fx.symbolic_trace(module)
        owner = type(module)
        gone = weakref.ref(module)
    assert torch.equal(again(X), X + 1)
    del module
    gc.collect()
    assert gone() is None
    assert owner.forward is not None  # was generated when it was traced


def test_calls_inside_are_generated_too() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.fx.symbolic_trace(Model())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    with code_generated_late():
        module = torch.fx.symbolic_trace(Outer())
    assert torch.equal(module(X), (X + 1) * 2)


def test_a_capture_generates_no_code(generated: list[torch.fx.Graph]) -> None:
    program = aot_export(Model(), (X,))
    assert generated == []
    assert torch.equal(program.runnable()(X)[0], X + 1)
