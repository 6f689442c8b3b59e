"""Short cuts have the answers that TorchInductor finds in the long way."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
import sympy
import torch
from torch._inductor import compile_fx, lowering, sizevars
from torch._inductor.codegen import cpp
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.fx_passes import joint_graph
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._sympy.functions import FloorDiv, Max, Min, ModularIndexing, Where

from aotpack.export.torch_compat.inductor.short_cuts import IN_PATTERNS, short_cuts, split

LOOPS = [sympy.Symbol(f"x{i}", integer=True, nonnegative=True) for i in range(3)]
SIZES = [sympy.Symbol(f"s{i}", integer=True, positive=True) for i in range(2)]


def _index(draws: random.Random) -> sympy.Expr:
    """A sum of products, as loops over dense tensors and slices have it."""
    terms = []
    for loop in draws.sample(LOOPS, draws.randint(0, 3)):
        sizes = draws.sample(SIZES, draws.randint(0, 2))
        terms.append(sympy.Mul(loop, draws.choice([1, 1, 3, 32, -2, SIZES[0] + 1, FloorDiv(SIZES[1], 2)]), *sizes))
    return sympy.Add(draws.choice([0, 0, 7, SIZES[0]]), *terms)


def test_products_have_the_stride_that_torch_finds() -> None:
    draws = random.Random(0)
    for _ in range(60):
        index, var = _index(draws), draws.choice(LOOPS)
        found, rest = split(index, var)
        assert rest == 0
        assert sympy.expand(found - sizevars.stride_at_vec_range(index, var, 16)) == 0


OTHERS = [
    FloorDiv(LOOPS[0], 4),
    FloorDiv(LOOPS[0], 16),
    ModularIndexing(LOOPS[0], 1, 8),
    ModularIndexing(LOOPS[0] + 5, 1, SIZES[1]),
    SIZES[0] * FloorDiv(LOOPS[0], 2),
    LOOPS[0] ** 2,
    SIZES[0] * (LOOPS[0] + 1),
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_the_rest_is_left_to_torch(other: sympy.Expr) -> None:
    index = other + 3 * LOOPS[0] + SIZES[0] * LOOPS[1] + SIZES[1]
    assert split(index, LOOPS[0]) == (3, other)
    by_torch = sizevars.stride_at_vec_range(index, LOOPS[0], 16)
    with short_cuts():
        assert sympy.expand(cpp.stride_at_vec_range(index, LOOPS[0], 16) - by_torch) == 0
        assert cpp.stride_at_vec_range(index, LOOPS[1], 16) == SIZES[0]


WINDOWS = [
    Min(SIZES[0], FloorDiv(LOOPS[0], 2) + 1) - Max(0, LOOPS[0] - 3),
    Min(5, Max(0, LOOPS[0] - 1) + LOOPS[1]) * Min(7, 2 * LOOPS[0] + 2),
    (LOOPS[0] + 3) * Min(7, LOOPS[1] + 1),
    Min(SIZES[0], FloorDiv(LOOPS[0], 16)),
    FloorDiv(9 * Min(4, FloorDiv(5 * LOOPS[0], 9)) + 13, 5),
    SIZES[0] - sympy.Abs(SIZES[0] - sympy.Abs(LOOPS[0] - 2) - 1) - 1,
    Where(LOOPS[0] < 3, LOOPS[0] + LOOPS[1], 2 * LOOPS[0]),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_strides_between_bounds(window: sympy.Expr) -> None:
    """What code depends on: whether the stride is a number, which one, and which loops it varies with."""
    for var in LOOPS[:2]:
        by_torch = sizevars.stride_at_vec_range(window, var, 16)
        sizevars.stride_at.cache_clear()
        sizevars.stride_at_vec_range.cache_clear()
        sizevars.simplify_index_in_vec_range.cache_clear()
        with short_cuts():
            found = cpp.stride_at_vec_range(window, var, 16)
        assert found.free_symbols == by_torch.free_symbols
        assert found.is_number == by_torch.is_number
        values = {symbol: sympy.Integer(3 + i) for i, symbol in enumerate(sorted(found.free_symbols, key=str))}
        assert found.xreplace(values) == by_torch.xreplace(values)


def test_what_cancels_to_a_number_is_simplified_without_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def simplify(expr: Any) -> Any:
        asked.append(expr)
        return expr

    monkeypatch.setattr(sympy, "simplify", simplify)
    x = sympy.Symbol("x", integer=True)
    with short_cuts():
        assert sympy.simplify(16 * (x + 1) - 16 * x - 12) == 4
        assert not asked
        for other in (x + 1, sympy.true, True, x > 1):
            assert sympy.simplify(other) == other
    assert asked == [x + 1, sympy.true, True, x > 1]


def test_the_table_of_dtypes_is_whole() -> None:
    assert lowering.lowerings, "operators are registered by this import"
    by_torch = set(dir(DtypePropagationOpsHandler()))
    with short_cuts():
        assert set(dir(DtypePropagationOpsHandler())) == by_torch


def _calls(target: torch._ops.OpOverload, *shapes: tuple[int, ...]) -> torch.fx.GraphModule:
    """A graph that calls an operator with tensors of these shapes."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(len(shapes))]
    with FakeTensorMode():
        values = [torch.empty(shape) for shape in shapes]
        for node, value in zip(inputs, values, strict=True):
            node.meta["val"] = value
        result = graph.call_function(target, tuple(inputs))
        result.meta["val"] = target(*values)
    graph.output((result,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("graph", "registered"),
    [
        (_calls(torch.ops.aten.relu.default, (4, 4)), 0),
        (_calls(torch.ops.aten.mm.default, (4, 4), (4, 4)), 1),
        (_calls(torch.ops.aten.bmm.default, (2, 4, 4), (2, 4, 4)), 1),
    ],
    ids=["no product", "mm", "bmm"],
)
def test_patterns_of_products_are_for_graphs_that_have_one(
    graph: torch.fx.GraphModule, registered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(joint_graph, "lazy_init", lambda *device: called.append(device))
    with short_cuts():
        compile_fx.joint_graph_passes(graph)
    assert len(called) == registered


# In a process of its own: torch registers patterns once.
_REGISTERED = """
from torch._inductor.fx_passes import joint_graph

def known():
    passes = [joint_graph.early_patterns, joint_graph.patterns, *joint_graph.pass_patterns]
    return {id(entry): entry for each in passes for entries in each.patterns.values() for entry in entries}

before = known()
joint_graph.lazy_init()
print(*(repr(entry.pattern) for key, entry in known().items() if key not in before), sep=chr(0))
"""


def test_every_pattern_that_is_left_out_has_a_product_or_a_permutation() -> None:
    command = [sys.executable, "-c", _REGISTERED]
    patterns = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(chr(0))
    assert len(patterns) > 20
    for pattern in patterns:
        assert any(f"{operator}" in pattern for operator in IN_PATTERNS), pattern
