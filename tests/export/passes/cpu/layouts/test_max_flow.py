"""Maximum flows, against networkx."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpack.export.passes.cpu.layouts.max_flow import Network

NODES = st.integers(0, 7)
EDGES = st.dictionaries(st.tuples(NODES, NODES), st.one_of(st.none(), st.integers(0, 9)), max_size=30)


@given(EDGES)
def test_flows_and_cuts_are_those_of_networkx(edges: dict[tuple[int, int], int | None]) -> None:
    network, graph = Network(0, 1), networkx.DiGraph()
    graph.add_nodes_from((0, 1))
    for (a, b), capacity in edges.items():
        if a != b:
            network.add(a, b, capacity)
            graph.add_edge(a, b, **({} if capacity is None else {"capacity": capacity}))
    try:
        flow, (_, ones) = networkx.minimum_cut(graph, 0, 1)
    except networkx.NetworkXUnbounded:
        with pytest.raises(ValueError, match="unbounded"):
            network.minimum_cut()
        return
    assert network.minimum_cut() == (flow, ones)


def test_edges_between_the_same_nodes_add_up() -> None:
    network = Network("a", "b")
    for capacity in (2, 3):
        network.add("a", "b", capacity)
    assert network.minimum_cut() == (5, {"b"})


def test_a_long_chain() -> None:
    network = Network(0, 10_000)
    for node in range(10_000):
        network.add(node, node + 1, None if node else 7)
    assert network.minimum_cut() == (7, set(range(1, 10_001)))
