"""Conditions on dims: what they become, and that they then say the same."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod, ToFloat, TruncToInt

from aotpack.errors import CaptureError
from aotpack.export.symbolic_shapes.guards import Demands, demands, dim_symbol, implied
from aotpack.export.symbolic_shapes.shape_env import Assumption, Origin
from aotpack.spec import Dim
from tests.support.acceptance import code_to_z3, condition_to_z3, prove, range_to_z3, satisfied

n, m = dim_symbol("n"), dim_symbol("m")
N, M = Dim("n"), Dim("m")
LINE = Origin("model.py:3, in forward: y = x.view(-1, 8)")


def of(dims: list[Dim], *conditions: Any, inside: bool = False, explicit: tuple[str, ...] = ()) -> Demands:
    origin = Origin(LINE.line, inside)
    found = [Assumption(condition, origin) for condition in conditions]
    return demands(dims, found, explicit_min=frozenset(explicit))


def said(found: Demands) -> tuple[list[str], list[str]]:
    return [str(dim) for dim in found.dims], [check.text for check in found.checks]


CASES: list[tuple[list[Any], list[str], list[str]]] = [
    ([n > 3], ["n >= 4", "m >= 0"], []),
    ([2 * n <= 9], ["n in [0, 4]", "m >= 0"], []),
    ([sympy.Eq(Mod(n, 8), 0)], ["n >= 0 by 8", "m >= 0"], []),
    ([sympy.Eq(Mod(6 * n, 8), 0)], ["n >= 0 by 4", "m >= 0"], []),
    ([sympy.Eq(Mod(n, 4), 0), sympy.Eq(Mod(n, 6), 0)], ["n >= 0 by 12", "m >= 0"], []),
    ([sympy.Eq(n, 8 * FloorDiv(n, 8))], ["n >= 0 by 8", "m >= 0"], []),
    ([sympy.Eq(Mod(n * m, 8), 0), sympy.Eq(n * m, 8 * FloorDiv(n * m, 8))], ["n >= 0", "m >= 0"], ["m*n % 8 == 0"]),
    ([sympy.Eq(Mod(n, 8), 0), sympy.Eq(Mod(3 * n * m, 16), 0)], ["n >= 0 by 8", "m >= 0"], ["m*n % 16 == 0"]),
    ([sympy.Eq(Mod(n, 8), 0), sympy.Eq(Mod(3 * n * m, 8), 0)], ["n >= 0 by 8", "m >= 0"], []),
    ([sympy.Eq(n, 2) | sympy.Eq(Mod(n, 2), 0)], ["n >= 0 by 2", "m >= 0"], []),
    ([sympy.Ne(n, 1)], ["n >= 0", "m >= 0"], ["n != 1"]),
    ([sympy.Ne(n, 1), sympy.Ne(n, 0)], ["n >= 2", "m >= 0"], []),
    ([sympy.Ne(3 * n * m, 0)], ["n >= 1", "m >= 1"], []),
    ([3 * n * m > 1], ["n >= 1", "m >= 1"], []),
    ([(n >= 3) & (m >= 3), 3 * n * m > 1], ["n >= 3", "m >= 3"], []),
    ([sympy.Eq(FloorDiv(n + 3, 4), 4)], ["n in [13, 16]", "m >= 0"], []),
    ([n >= 2, sympy.Eq(n, Max(1, n))], ["n >= 2", "m >= 0"], []),
    ([Min(n, m) >= 2, Max(n, 1) >= 1], ["n >= 0", "m >= 0"], ["min(m, n) >= 2"]),
    ([sympy.Ne(n, m), n > m], ["n >= 0", "m >= 0"], ["m != n", "n >= m + 1"]),
    ([sympy.Eq(2 * n, m)], ["n >= 0", "m >= 0"], ["m == 2*n"]),
    ([sympy.Ne((n - 2) * (m - 2), 0), n >= 3], ["n >= 3", "m >= 0"], ["m != 2"]),
]


@pytest.mark.parametrize(("conditions", "dims", "checks"), CASES, ids=lambda case: str(case)[:50])
def test_conditions_become_ranges_multiples_and_checks(
    conditions: list[Any], dims: list[str], checks: list[str]
) -> None:
    assert said(of([N, M], *conditions)) == (dims, checks)


@pytest.mark.parametrize("conditions", [case[0] for case in CASES], ids=lambda case: str(case)[:50])
def test_what_is_left_is_equivalent(conditions: list[Any]) -> None:
    found = of([N, M], *conditions)
    prove_equivalent([N, M], conditions, found)


def prove_equivalent(dims: list[Dim], conditions: list[Any], found: Demands, **options: Any) -> None:
    before = z3.And(*map(range_to_z3, dims), *map(condition_to_z3, conditions))
    after = z3.And(*map(range_to_z3, found.dims), *(code_to_z3(check.code) for check in found.checks))
    prove(before == after, **options)


# ---- random conditions ----------------------------------------------------------------------------------------------

small = st.integers(-6, 6)
linear = st.builds(lambda a, b, c: a * n + b * m + c, small, small, st.integers(-30, 30))
divided = st.builds(lambda p, k, c: FloorDiv(p, sympy.Integer(k)) + c, linear, st.integers(2, 6), small)
remainders = st.builds(lambda p, k: sympy.Eq(PythonMod(p, sympy.Integer(k)), 0), linear, st.integers(2, 12))
extremes = st.builds(lambda f, p, q: f(p, q), st.sampled_from([Max, Min]), linear, linear)
terms = st.one_of(linear, divided, extremes)
relations = st.builds(
    lambda kind, p, q: kind(p, q),
    st.sampled_from([sympy.Eq, sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt]),
    terms,
    st.one_of(terms, small.map(sympy.Integer)),
)
simple = st.one_of(relations, remainders)
conditions_of_dims = st.one_of(
    simple,
    st.builds(sympy.Or, simple, simple),
    st.builds(sympy.And, simple, simple),
    st.builds(sympy.Not, st.builds(sympy.And, simple, simple)),
)
ranges = st.builds(
    lambda low, length, step: (low, None if length is None else low + length * step + step, step),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 40)),
    st.sampled_from([1, 1, 1, 2, 3, 8]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(conditions_of_dims, min_size=1, max_size=3), ranges, ranges, st.randoms(use_true_random=False))
def test_random_conditions_admit_the_same_sizes(conditions: list[Any], first: Any, second: Any, random: Any) -> None:
    dims = [Dim("n", *first), Dim("m", *second)]
    # A bound that the user gave is never taken back: the ranges are what the conditions are met by.
    sizes = [{"n": random.randint(0, 40), "m": random.randint(0, 40)} for _ in range(60)]
    wanted = [satisfied(dims, (), point) and _true(conditions, point) for point in sizes]
    try:
        found = of(dims, *conditions)
    except CaptureError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "declared" in refused or not any(wanted), refused
        return
    assert [satisfied(found.dims, found.checks, point) for point in sizes] == wanted


def _true(conditions: list[Any], sizes: dict[str, int]) -> bool:
    values = {dim_symbol(name): sympy.Integer(size) for name, size in sizes.items()}
    return all(condition.xreplace(values) == sympy.true for condition in conditions)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(simple, min_size=1, max_size=2))
def test_random_conditions_are_proved_equivalent(conditions: list[Any]) -> None:
    dims = [N, M]
    try:
        found = of(dims, *conditions)
    except CaptureError:
        claim = z3.Not(z3.And(*map(range_to_z3, dims), *map(condition_to_z3, conditions)))
        prove(claim)
        return
    prove_equivalent(dims, conditions, found)


# ---- what is refused, and what is left out --------------------------------------------------------------------------


def test_a_bound_that_the_user_gave_is_not_taken_back() -> None:
    with pytest.raises(CaptureError, match=r"dim 'n' is declared as n in \[1, 64\].*at least 4\n  at model.py:3"):
        of([Dim("n", 1, 64)], n > 3, explicit=("n",))
    with pytest.raises(CaptureError, match="at most 32"):
        of([Dim("n", 1, 64)], n <= 32)
    assert said(of([Dim("n", 1, 64)], n > 3))[0] == ["n in [4, 64]"]


def test_conditions_that_nothing_satisfies() -> None:
    with pytest.raises(CaptureError, match="no size"):
        of([N], n >= 5, n <= 4)
    with pytest.raises(CaptureError, match="no sizes satisfy"):
        of([N], sympy.Eq(2 * n, 3))


def test_a_condition_that_cannot_be_computed_in_a_call() -> None:
    unknown = sympy.Function("Unknown")
    with pytest.raises(CaptureError, match=r"relies on Unknown\(n\) == 2, which cannot be checked.*\n  at model.py:3"):
        of([N], sympy.Eq(unknown(n), 2))


def test_numbers_in_floats_are_checked() -> None:
    found = of([N], sympy.Eq(TruncToInt(0.5 * ToFloat(n)), 2))
    assert said(found) == (["n >= 0"], ["int(0.5*n) == 2"])
    assert [size for size in range(10) if satisfied(found.dims, found.checks, {"n": size})] == [4, 5]


def test_a_short_range_is_looked_at_size_by_size() -> None:
    assert said(of([Dim("n", 2, 5)], sympy.Eq(TruncToInt(0.25 * ToFloat(n)) * (n - 100), 0) | (n >= 2))) == (
        ["n in [2, 5]"],
        [],
    )


def test_operators_are_not_believed_about_zero_and_one() -> None:
    assert said(of([N, M], sympy.Ne(n, 1), sympy.Ne(8 * n * m, 0), n * m > 1, inside=True)) == (
        ["n >= 0", "m >= 0"],
        [],
    )
    assert said(of([N, M], sympy.Ne(n * (m - 2), 0), m >= 3, inside=True)) == (["n >= 0", "m >= 3"], [])
    assert said(of([N], sympy.Ne(n, 7), inside=True))[1] == ["n != 7"]
    # An int argument is no size.
    assert said(of([Dim("n", -9)], sympy.Ne(n, 1), inside=True))[1] == ["n != 1"]


def test_what_follows_from_dims_and_checks() -> None:
    checks = of([N, M], sympy.Ne(n, m)).checks
    assert implied(n >= 2, [Dim("n", 3)])
    assert not implied(n >= 2, [Dim("n", 1)])
    assert implied(sympy.Ne(m, n), [N, M], checks)
    assert implied(sympy.Eq(Mod(6 * n, 4), 0), [Dim("n", multiple_of=2)])


def test_notes_have_the_line() -> None:
    notes = of([N, M], n > 3, n > 5, sympy.Eq(Mod(n * m, 8), 0)).notes
    assert [str(note) for note in notes] == [
        f"n: must be at least 6\n  at {LINE.line}",
        f"m, n: must satisfy m*n % 8 == 0\n  at {LINE.line}",
    ]
