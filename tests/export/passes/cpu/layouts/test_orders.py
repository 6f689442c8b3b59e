"""Orders of dims in memory, and how views and reshapes carry them."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpack.export.passes.cpu.layouts.orders import (
    DimMap,
    Order,
    Regroup,
    channels_last,
    contiguous,
    order_of,
    same_order,
)


def _laid(sizes: tuple[int, ...], order: Order) -> torch.Tensor:
    back = [order.index(d) for d in range(len(order))]
    return torch.empty([sizes[d] for d in order]).permute(back)


@given(st.data())
def test_orders_of_permuted_tensors(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)))
    order = tuple(data.draw(st.permutations(range(len(sizes)))))
    dims = data.draw(st.permutations(range(len(sizes))))
    result = _laid(sizes, order).permute(dims)
    relation = DimMap(tuple(dims), sizes, tuple(result.shape))
    got = relation.forward(order)
    assert got is not None and same_order(got, order_of(result), result.shape)
    assert relation.backward(got) == order
    assert relation.agree(order, got)


@given(st.data())
def test_orders_of_reshaped_tensors(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))

    def grouped() -> tuple[int, ...]:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(factors)))) - {len(factors)})
        edges = [0, *cuts, len(factors)]
        return tuple(math.prod(factors[a:b]) for a, b in itertools.pairwise(edges))

    sizes, other = grouped(), grouped()
    order = tuple(data.draw(st.permutations(range(len(sizes)))))
    laid = _laid(sizes, order)
    relation = Regroup.between(sizes, other)
    got = relation.forward(order)
    if got is None:
        return
    # Where the relation knows an order, the reshape is a view and lies so.
    result = laid.view(other)
    assert same_order(got, order_of(result), other)
    back = relation.backward(got)
    assert back is None or same_order(back, order, sizes)


def test_reshapes_that_follow_channels_last() -> None:
    tokens = Regroup.between((2, 8, 4, 4), (2, 8, 16))
    assert tokens.forward(channels_last(4)) == (0, 2, 1)
    assert tokens.backward((0, 2, 1)) == channels_last(4)
    flat = Regroup.between((2, 8, 4, 4), (2, 128))
    assert flat.forward(channels_last(4)) is None
    assert flat.forward(contiguous(4)) == (0, 1)
    assert Regroup.between((2, 8, 1, 1), (2, 8)).forward(channels_last(4)) == (0, 1)
