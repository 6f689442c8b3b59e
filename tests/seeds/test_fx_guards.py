"""Guards of captured programs, simplified: z3 proves over all integers that they admit the sizes that torch's do.

What torch found while it traced a model (`watched`) is compared with what calls of the archive must satisfy: ranges,
multiples and checks. No size that torch's guards admit is rejected. A size that they reject is rejected too, unless
trial calls of the capture have shown that it makes no difference, as with most of the questions that operators ask
about the sizes 0 and 1: z3 looks for such sizes, and the program answers for them as eager does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import z3
from torch import Tensor, nn

from aotpack import Dim
from aotpack.export import Program, aot_export
from tests.support.acceptance import accepts, code_to_z3, condition_to_z3, prove, range_to_z3, watched
from tests.support.building import assert_close

pytestmark = pytest.mark.torch
N, M = Dim("n"), Dim("m")
randn = torch.randn


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        function: the model.
        inputs: makes the arguments for sizes of the dims.
        example: sizes of the example call.
        shapes: dynamic shapes by input.
        exact: whether the archive rejects all that torch's guards reject.
        least: sizes below have conditions without a value, which admit nothing.
    """

    function: Callable[..., Any]
    inputs: Callable[..., tuple[Tensor, ...]]
    example: Mapping[str, int]
    shapes: Any
    exact: bool = True
    least: int = 0


def minimum(x: Tensor, y: Tensor) -> Tensor:
    both = min(x.shape[0], y.shape[0])
    return x[:both] + y[:both]


def checked(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.shape[0] >= 2 * y.shape[0] + 1)
    return x[: y.shape[0]] + y


def long(x: Tensor) -> Tensor:
    return x.sin() if x.shape[0] > 5 else x.cos()


def not_thirds(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 3 == 1 else x


def square(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] == x.shape[1] else x


def area(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] * x.shape[1] < 100 and x.shape[0] >= 4 else x


def one(n: int) -> tuple[Tensor, ...]:
    return (randn(n),)


def rows(n: int, m: int) -> tuple[Tensor, ...]:
    return (randn(n, m),)


def two(n: int, m: int) -> tuple[Tensor, ...]:
    return randn(n), randn(m)


def image(n: int) -> tuple[Tensor, ...]:
    return (randn(1, 2, n),)


X, XY, XX = {"x": {0: N}}, {"x": {0: N}, "y": {0: M}}, {"x": {0: N, 1: M}}
CASES: dict[str, Case] = {
    "view": Case(lambda x: x.view(-1, 8), one, {"n": 16}, X),
    "view of a product": Case(lambda x: x.reshape(-1, 6), rows, {"n": 4, "m": 9}, XX),
    "halves": Case(lambda x: x.chunk(2)[0] + x.chunk(2)[1], one, {"n": 8}, X, least=1),
    "slices": Case(lambda x: x[3:] + x[:-3], one, {"n": 9}, X),
    "branch": Case(long, one, {"n": 9}, X),
    "branch on a remainder": Case(not_thirds, one, {"n": 7}, X),
    "branch on two sizes": Case(area, rows, {"n": 6, "m": 5}, XX),
    "branch on unequal sizes": Case(square, rows, {"n": 6, "m": 5}, XX),
    "check": Case(checked, two, {"n": 9, "m": 3}, XY),
    "convolution": Case(nn.Conv1d(2, 3, 5, stride=2).eval(), image, {"n": 20}, {"input": {2: N}}),
    "pooling": Case(lambda x: nn.functional.avg_pool1d(x, 3, 2), image, {"n": 20}, {"x": {2: N}}),
    "pixels": Case(
        lambda x: nn.functional.pixel_unshuffle(x, 2),
        lambda n, m: (randn(1, 1, n, m),),
        {"n": 6, "m": 4},
        {"x": {2: N, 3: M}},
        exact=False,
    ),
    "padding": Case(lambda x: nn.functional.pad(x, (2, 1), mode="reflect"), image, {"n": 7}, {"x": {2: N}}),
    "equal sizes": Case(lambda x, y: x + y, lambda n: (randn(n), randn(n)), {"n": 5}, {"x": {0: N}, "y": {0: N}}),
    "relation": Case(
        lambda x, y: torch.cat([x, x]) * y, lambda n: (randn(n), randn(2 * n)), {"n": 4}, {"x": {0: N}, "y": {0: 2 * N}}
    ),
    "minimum": Case(minimum, two, {"n": 6, "m": 4}, XY),
    "unfold": Case(lambda x: x.unfold(0, 4, 3).sum(1), one, {"n": 13}, X),
}


def captured(case: Case) -> tuple[Program, Any, Any]:
    """The program; the conditions of torch, and those of the archive."""
    with watched() as assumed:
        program = aot_export(case.function, case.inputs(**case.example), dynamic_shapes=case.shapes)
    ranges = [range_to_z3(dim) for dim in assumed.dims]
    before = z3.And(*ranges, *(condition_to_z3(each.expr) for each in assumed.assumptions))
    checks = [code_to_z3(check.code) for check in program.checks]
    return program, before, z3.And(*map(range_to_z3, program.signature.dims), *checks)


def others(before: Any, after: Any, count: int = 4) -> list[dict[str, int]]:
    """Sizes that the archive takes and torch's guards do not."""
    solver = z3.Solver()
    solver.add(after, z3.Not(before), *(z3.Int(name) <= 200 for name in ("n", "m")))
    found: list[dict[str, int]] = []
    while len(found) < count and solver.check() == z3.sat:
        model = solver.model()
        found.append({name: model.eval(z3.Int(name), model_completion=True).as_long() for name in ("n", "m")})
        solver.add(z3.Or(*(z3.Int(name) != size for name, size in found[-1].items())))
    return found


@pytest.mark.parametrize("name", CASES)
def test_simplified_guards_are_equal(name: str) -> None:
    case = CASES[name]
    program, before, after = captured(case)
    prove(z3.Implies(before, after))
    if case.exact:
        least = z3.And(*(z3.Int(dim) >= case.least for dim in case.example))
        prove(z3.Implies(z3.And(after, least), before))
        assert not case.least or not accepts(program, dict.fromkeys(case.example, case.least - 1))
        return
    points = others(before, after)
    assert points
    for sizes in points:
        args = case.inputs(**{name: sizes[name] for name in case.example})
        assert accepts(program, sizes)
        assert_close(program.runnable()(*args)[0], case.function(*args))
