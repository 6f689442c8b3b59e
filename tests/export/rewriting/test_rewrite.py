"""Rewrites of users: what matches, what takes its place, and what is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.errors import PassError
from aotpack.export import Match, Program, Rewrite, aot_export, rewrite_pattern
from tests.export.conftest import assert_close

pytestmark = pytest.mark.torch
aten = torch.ops.aten


@rewrite_pattern(lambda x: x * torch.sigmoid(x))
def use_silu(x: Tensor) -> Tensor:
    """Replaces x * sigmoid(x) by silu.

    More.
    """
    return nn.functional.silu(x)


def operators(program: Program) -> list[str]:
    found = []
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            found += [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return found


def check(
    rewrite: Rewrite, function: Callable[..., Any], *args: Tensor, dynamic_shapes: Any = None, same: bool = True
) -> Program:
    """The program of a function after a rewrite; it answers as before."""
    before = aot_export(function, args, dynamic_shapes=dynamic_shapes)
    after = rewrite(before)
    if same:
        (result,) = after.runnable()(*args)
        assert_close(result, before.runnable()(*args)[0])
    return after


def test_a_pattern() -> None:
    """Every place, whatever the rank, dtype and order of operands; the report names the places."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            return torch.sigmoid(y) * y

    model = nn.Sequential(Block(), Block()).eval()
    after = check(use_silu, model, torch.randn(2, 3, 4), dynamic_shapes={"input": {0: Dim("n", 1, 8)}})
    assert operators(after).count("aten.silu.default") == 2
    assert "aten.sigmoid.default" not in operators(after)
    (report,) = after.reports
    assert (report.name, report.summary) == ("use-silu", "Replaces x * sigmoid(x) by silu.")
    assert [change.layer for change in report.changes] == ["0", "1"]
    silu = next(node for node in after.graph.nodes if node.target is aten.silu.default)
    assert "test_rewrite.py" in silu.meta["stack_trace"]
    assert "aten.silu.default" in operators(check(use_silu, lambda x: x * x.sigmoid(), torch.randn(3).double()))


def test_nothing_matches() -> None:
    program = aot_export(lambda x: x * torch.sigmoid(x + 1), (torch.randn(3),))
    assert use_silu(program) is program


def test_functions_without_a_signature() -> None:
    """Those of C: they get what is not at its default."""
    given = torch.randn(3)
    assert operators(check(rewrite_pattern(aten.sin)(torch.sin), torch.sin, given)) == ["aten.sin.default"]
    assert "aten.tanh.default" in operators(
        check(rewrite_pattern(aten.gelu, name="rough")(torch.tanh), nn.GELU(), given, same=False)
    )
    with pytest.raises(PassError, match="tanh"):
        check(rewrite_pattern(aten.gelu, name="rough")(torch.tanh), nn.GELU(approximate="tanh"), given)


def test_an_operator() -> None:
    """All calls of an operator, in all of its overloads, with the arguments that each has."""

    @rewrite_pattern(torch.ops.aten.gelu)
    def gelu(x: Tensor, approximate: str = "none") -> Tensor:
        return x * (1 if approximate == "none" else 2)

    def model(x: Tensor) -> Tensor:
        return nn.functional.gelu(x) + nn.functional.gelu(x + 1, approximate="tanh")

    after = check(gelu, model, torch.ones(3), same=False)
    assert_close(after.runnable()(torch.ones(3))[0], torch.full((3,), 5.0))

    @rewrite_pattern(aten.relu.default, name="my-relu")
    def relu(x: Tensor) -> Tensor:
        return x.clamp(min=0)

    assert relu.name == "my-relu"
    assert operators(check(relu, torch.relu, torch.randn(3))) == ["aten.clamp.default"]


def test_arguments_of_an_operator() -> None:
    """Arguments at their defaults may be left out; others must have a parameter."""

    @rewrite_pattern(aten.softmax.int)
    def softmax(x: Tensor, dim: int) -> Tensor:
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e / e.sum(dim, keepdim=True)

    after = check(softmax, lambda x: x.softmax(-1), torch.randn(2, 3), dynamic_shapes={"x": {0: Dim("n", 1, 8)}})
    assert "aten.softmax.int" not in operators(after)
    with pytest.raises(PassError, match=r"arguments that the replacement does not take: self, dim, dtype"):
        check(softmax, lambda x: x.softmax(-1, dtype=torch.float64), torch.randn(2, 3))


def test_several_results() -> None:
    @rewrite_pattern(aten.topk.default)
    def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, indices = x.sort(-1, descending=True)
        return values[..., :k], indices[..., :k]

    after = check(topk, lambda x: x.topk(2).values, torch.randn(5, 4))
    assert "aten.topk.default" not in operators(after)

    @rewrite_pattern(aten.topk.default)
    def one(x: Tensor, k: int) -> Tensor:
        return x[..., :k]

    with pytest.raises(PassError, match=r"the replacement returns 1 values, but the operator has 2 results"):
        check(one, lambda x: x.topk(2).values, torch.randn(5, 4))


def test_wildcards_and_a_condition() -> None:
    """Tensors and numbers as parameters; a condition reads shapes, dtypes, constants and places."""
    seen: list[Match] = []

    def where(match: Match) -> bool:
        seen.append(match)
        return match.tensor("weight").constant and match["p"] != 3.0

    @rewrite_pattern(
        lambda x, weight, p: torch.pow(nn.functional.linear(x, weight), p),
        examples=(torch.zeros(2, 3), torch.zeros(4, 3), 7.0),
        where=where,
    )
    def products(x: Tensor, weight: Tensor, p: float) -> Tensor:
        return (x @ weight.t()) ** p

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.l(x) ** 4.0 + self.l(x + 1) ** 3.0 + nn.functional.linear(x, x[:4]) ** 4.0

    after = check(products, Model(), torch.randn(5, 4), dynamic_shapes={"x": {0: Dim("n", 4, 8)}})
    assert operators(after).count("aten.matmul.default") == 1
    assert operators(after).count("aten.linear.default") == 2
    first, second, third = seen
    assert (first.tensor("x").shape, first.tensor("weight").shape) == ((None, 4), (4, 4))
    assert (first["p"], second["p"], third.tensor("weight").constant) == (4.0, 3.0, False)
    assert (first.module, third.module) == ("", "")
    assert "self.l(x) ** 4.0" in first.line
    assert first.tensor("x").dtype is torch.float32
    with pytest.raises(TypeError, match="not a tensor"):
        first.tensor("p")


def test_a_parameter_that_occurs_twice() -> None:
    @rewrite_pattern(lambda x, y: (x - y) * (x - y))
    def square(x: Tensor, y: Tensor) -> Tensor:
        return (x - y).square()

    args = (torch.randn(3), torch.randn(3))
    assert "aten.square.default" in operators(check(square, lambda a, b: (a - b) * (a - b), *args))
    assert "aten.square.default" not in operators(check(square, lambda a, b: (a - b) * (b - a), *args))


def test_values_that_are_read_elsewhere() -> None:
    """The pattern's inner values must not be needed outside of it."""
    args = (torch.randn(3),)
    after = check(use_silu, lambda x: (x * x.sigmoid()) + x.sigmoid().exp(), *args)
    assert operators(after).count("aten.silu.default") == 1

    def shared(x: Tensor) -> Tensor:
        s = x.sigmoid()
        return x * s + s

    assert "aten.silu.default" not in operators(check(use_silu, shared, *args))


def test_literals_differ() -> None:
    @rewrite_pattern(lambda x: x.clamp(min=0.0, max=6.0))
    def relu6(x: Tensor) -> Tensor:
        return nn.functional.relu6(x)

    count = operators(check(relu6, lambda x: x.clamp(0, 6) + x.clamp(0, 5) + x.clamp(min=0), torch.randn(3)))
    assert count.count("aten.clamp.default") == 2


def test_results_are_tensors_of_their_own() -> None:
    """What a program returns is no input, also where a rewrite leaves nothing."""

    @rewrite_pattern(aten.relu.default)
    def nothing(x: Tensor) -> Tensor:
        return x

    assert operators(check(nothing, torch.relu, torch.rand(3))) == ["aten.clone.default"]
    assert operators(check(nothing, lambda x: torch.relu(x) + 1, torch.rand(3))) == ["aten.add.Tensor"]


def test_state_is_not_seen_after_it_is_written() -> None:
    """A rewrite that returns a view of state: the values are those before the write."""

    class Model(nn.Module):
        b: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.ones(2, 3))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.b.exp().t()
            self.b.copy_(x)
            return y, y + 1

    @rewrite_pattern(lambda x: x.exp().t())
    def transpose(x: Tensor) -> Tensor:
        return x.t()

    after = transpose(aot_export(Model(), (torch.zeros(2, 3),)))
    assert operators(after) == ["aten.t.default", "aten.clone.default", "aten.add.Tensor", "aten.copy_.default"]


def test_layouts_follow() -> None:
    """Strides of what reads the replacement are computed again."""

    @rewrite_pattern(aten.exp.default)
    def transposed(x: Tensor) -> Tensor:
        return x.t().contiguous().exp().t()

    after = check(transposed, lambda x: x.exp() * 2, torch.randn(3, 4))
    (product,) = (node for node in after.graph.nodes if node.target is aten.mul.Tensor)
    assert product.meta["val"].stride() == (1, 3)


def test_dynamic_sizes_in_a_replacement() -> None:
    @rewrite_pattern(aten.mean.dim)
    def mean(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
        return x.sum(dim, keepdim=keepdim) / x.shape[dim[0]]

    shapes = {"x": {0: Dim("n", 1, 8)}}
    after = check(mean, lambda x: x.mean(0), torch.randn(4, 3), dynamic_shapes=shapes)
    x = torch.randn(7, 3)
    assert_close(after.runnable()(x)[0], x.mean(0))


def test_graphs_inside() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * x.sigmoid(), lambda x: x + 1, (x,))

    after = use_silu(aot_export(model, (torch.randn(3),)))
    assert operators(after).count("aten.silu.default") == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.double(), "changes the dtype from torch.float32 to torch.float64"),
        (lambda x: x.sum(0), r"changes the shape from \['2', '3'\] to \['3'\]"),
        (lambda x: 1, "not a tensor of the program"),
        (lambda x: (x, x), "returns 2 values, but the operator has 1 results"),
        (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), "contains a tensor or a function of its own"),
    ],
)
def test_replacements_that_do_not_fit(function: Callable[[Tensor], Any], message: str) -> None:
    rewrite = rewrite_pattern(aten.relu.default, name="unfit")(function)
    with pytest.raises(PassError, match=message) as info:
        check(rewrite, torch.relu, torch.randn(2, 3))
    assert str(info.value).startswith("rewrite unfit: ")


def test_a_dtype_is_changed_inside() -> None:
    @rewrite_pattern(aten.exp.default)
    def in_double(x: Tensor) -> Tensor:
        return x.double().exp().to(x.dtype)

    after = check(in_double, lambda x: x.exp() + 1, torch.randn(3))
    assert [node.meta["val"].dtype for node in after.graph.nodes if node.target is aten.exp.default] == [torch.float64]
    assert after.graph.output_node().args[0][0].meta["val"].dtype is torch.float32


def test_functions_that_fail() -> None:
    def where(match: Match) -> bool:
        raise KeyError("gone")

    def replacement(x: Tensor) -> Tensor:
        raise ValueError("no")

    for rewrite, message in (
        (rewrite_pattern(aten.relu.default, where=where)(replacement), "pass replacement failed: KeyError: 'gone'"),
        (rewrite_pattern(aten.relu.default)(replacement), "pass replacement failed: ValueError: no"),
    ):
        with pytest.raises(PassError, match=message) as info:
            rewrite(aot_export(torch.relu, (torch.randn(3),)))
        assert info.value.hint is None


def test_patterns_that_are_none() -> None:
    def same(x: Tensor) -> Tensor:
        return x

    with pytest.raises(TypeError, match="must take the parameters of its pattern, x, y"):
        rewrite_pattern(lambda x, y: x + y)(same)
    with pytest.raises(TypeError, match="positional parameters only"):
        rewrite_pattern(lambda *x: x[0] + 1)
    with pytest.raises(TypeError, match="1 examples for the parameters x, y"):
        rewrite_pattern(lambda x, y: x + y, examples=(torch.zeros(1),))
    with pytest.raises(TypeError, match="not a str"):
        rewrite_pattern("relu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an operator has no examples"):
        rewrite_pattern(aten.relu.default, examples=())
    with pytest.raises(TypeError, match="writes to its arguments"):
        rewrite_pattern(aten.relu_.default)
    program = aot_export(torch.relu, (torch.randn(3),))
    wrong: list[tuple[Callable[..., Any], str]] = [
        (lambda x: x, "calls at least one operator"),
        (lambda x: (x + 1, x + 2), "returns one tensor"),
        (lambda x: x + torch.tensor([1.0, 2.0]), "contains a tensor"),
        (lambda x: torch.zeros(3) + 1, "'x' of the pattern is not an argument"),
    ]
    for pattern, message in wrong:
        with pytest.raises(PassError, match=message):
            rewrite_pattern(pattern)(same)(program)
    number = rewrite_pattern(lambda x, n: x + 2 * n, examples=(torch.zeros(2), 5))(lambda x, n: x)
    with pytest.raises(PassError, match="'n' of the pattern is not an argument"):
        number(program)
