"""Walks through the messages of an ONNX file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from graphs(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those inside."""
    return nodes_of(graph.node)


def nodes_of(own: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, each with those of the graphs inside."""
    for node in own:
        yield node
        for inner in inner_graphs(node):
            yield from nodes(inner)


def texts(proto: onnx.ModelProto) -> Iterator[object]:
    """Names of all kinds that the model has."""
    for opset in proto.opset_import:
        yield opset.domain
    for function in proto.functions:
        yield from (function.domain, function.name, *function.input, *function.output, *function.attribute)
        yield from (opset.domain for opset in function.opset_import)
        for node in nodes_of(function.node):
            yield from _texts_of(node)
    yield proto.graph.name
    for node in nodes(proto.graph):
        yield from _texts_of(node)
    for graph in graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield value.name
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
        for tensor in graph.initializer:
            yield tensor.name
            yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


def _texts_of(node: onnx.NodeProto) -> Iterator[object]:
    yield from (node.domain, node.op_type, node.name, *node.input, *node.output)
    yield from (attribute.name for attribute in node.attribute)


def inner_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of attributes, and the initializers of graphs inside of nodes."""
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    for node in (node for body in bodies for node in nodes_of(body)):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in inner_graphs(node):
            yield from graph.initializer
