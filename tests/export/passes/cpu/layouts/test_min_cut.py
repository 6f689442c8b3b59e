"""The assignment of least cost, against all assignments."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aotpack.export.passes.cpu.layouts.min_cut import Assignment


@given(st.data())
def test_the_cut_is_optimal(data: st.DataObject) -> None:
    count_ = data.draw(st.integers(1, 6))
    cost = st.integers(0, 9)
    variable = st.integers(0, count_ - 1)
    fixed = data.draw(st.lists(st.sampled_from((None, None, 0, 1)), min_size=count_, max_size=count_))
    reader = st.one_of(variable.map(lambda v: ("v", v)), st.sampled_from((0, 1)))
    differ = data.draw(st.lists(st.tuples(variable, variable, cost), max_size=6))
    shares = data.draw(st.lists(st.tuples(variable, st.sampled_from((0, 1)), st.lists(reader, max_size=4), cost)))
    problem = Assignment()
    for v, label in enumerate(fixed):
        problem.add(("v", v), label)
    for a, b, c in differ:
        problem.differ(("v", a), ("v", b), c)
    for v, label, readers, c in shares:
        problem.share(("v", v), label, readers, c)

    def price(labels: Any) -> int:
        def of(r: Any) -> int:
            return r if isinstance(r, int) else labels[r[1]]

        total = sum(c for a, b, c in differ if labels[a] != labels[b])
        for v, label, readers, c in shares:
            total += c * (labels[v] != label and any(of(r) == label for r in readers))
        return total

    allowed = [labels for labels in itertools.product((0, 1), repeat=count_) if _obeys(labels, fixed)]
    labels, found = problem.solve()
    got = tuple(labels["v", v] for v in range(count_))
    assert got in allowed
    assert price(got) == found == min(price(labels) for labels in allowed)


def _obeys(labels: tuple[int, ...], fixed: list[int | None]) -> bool:
    return all(want is None or label == want for label, want in zip(labels, fixed, strict=True))
