"""Runs the nodes of a graph, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aotpack.errors import AotpackError
from aotpack.export.onnx.base.graph import Graph, Node
from aotpack.export.onnx.base.table import find, find_arithmetic
from aotpack.export.onnx.base.values import Known, as_tensor

Call = Callable[[Node, Sequence[Any]], tuple[Any, ...]]


def run_node(node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a node.

    Raises:
        OnnxError: the operator cannot be computed; the message names the node.
    """
    try:
        result = _computed(node, inputs)
    except AotpackError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, NotImplementedError, AttributeError, OverflowError) as error:
        raise node.error(f"{type(error).__name__}: {error}") from error
    except RuntimeError as error:
        # What tracing says with errors has classes of its own, which those around have to see.
        if type(error) is not RuntimeError:
            raise
        raise node.error(str(error)) from error
    return result if isinstance(result, tuple) else (result,)


def _computed(node: Node, inputs: Sequence[Any]) -> Any:
    if all(value is None or isinstance(value, Known) for value in inputs):
        function = find_arithmetic(node.domain, node.op)
        if function is not None:
            result = function(node, *inputs)
            if result is not NotImplemented:
                return result
    definition = find(node.domain, node.op, node.version)
    if definition is None:
        raise node.error("the operator is not supported")
    return definition.function(
        node, *(value if i in definition.known else as_tensor(value) for i, value in enumerate(inputs))
    )


class Runner:
    """Runs a graph.

    Args:
        graph: the graph.
        call: runs one node; by default `run_node`.
    """

    def __init__(self, graph: Graph, call: Call = run_node) -> None:
        self._graph = graph
        self._call = call
        last: dict[str, int] = {}
        for i, node in enumerate(graph.nodes):
            for name in _reads(node):
                last[name] = i
        kept = set(graph.outputs)
        self._dead: list[list[str]] = [[] for _ in graph.nodes]
        for name, i in last.items():
            if name not in kept:
                self._dead[i].append(name)

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs of the graph; `values` has its inputs, initializers, and what it reads from outside."""
        known = dict(values)
        for name, place in self._graph.bound.items():
            known[name] = known[place]
        for node, dead in zip(self._graph.nodes, self._dead, strict=True):
            inputs = [known[name] if name else None for name in node.inputs]
            graphs = [name for graph in node.subgraphs() for name in graph.free]
            if graphs:
                outer = {name: known[name] for name in graphs}
                results = _with_graphs(node, inputs, outer)
            else:
                results = self._call(node, inputs)
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    known[name] = value
            for name in dead:
                known.pop(name, None)
        return [known[name] for name in self._graph.outputs]


def _reads(node: Node) -> list[str]:
    return [*node.inputs, *(name for graph in node.subgraphs() for name in graph.free)]


def _with_graphs(node: Node, inputs: Sequence[Any], outer: Mapping[str, Any]) -> tuple[Any, ...]:
    """A node with graphs that read values from outside: it gets them as an attribute."""
    attributes = {**node.attributes, OUTER: dict(outer)}
    return run_node(Node(node.name, node.domain, node.op, node.version, node.inputs, node.outputs, attributes), inputs)


# The attribute with the values that the graphs of a node read from outside.
OUTER = "\0outer"
