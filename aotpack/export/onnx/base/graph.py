"""A graph of ONNX as plain objects: nodes with decoded attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import onnx
import torch
from numpy.typing import NDArray
from onnx import AttributeProto

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.base.table import ML
from aotpack.export.onnx.base.values import Known, known


@dataclass(frozen=True, eq=False)
class Node:
    """An operator call.

    Attributes:
        name: of the node, or one made from its operator and first output.
        domain, op: the operator; the domain of ONNX itself is "".
        version: the opset of the domain that the model imports.
        inputs: names of values; "" for an omitted one.
        outputs: names of values; "" for one that is not wanted.
        attributes: decoded: numbers, strings, tensors, graphs and lists of these.
        types: element types of the inputs as the file has them: dtypes of torch do not tell all of them apart.
        arrays: attributes of ai.onnx.ml that are tensors, as arrays: tensors cannot be read while a model is traced.
    """

    name: str
    domain: str
    op: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    types: tuple[int, ...] = ()
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def type_of(self, i: int) -> int:
        """The element type of an input, of `onnx.TensorProto`; 0 where it is not known."""
        return self.types[i] if i < len(self.types) else 0

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def require(self, name: str) -> Any:
        if name not in self.attributes:
            raise self.error(f"has no attribute {name!r}")
        return self.attributes[name]

    def wants(self, output: int) -> bool:
        """Whether an output is used."""
        return output < len(self.outputs) and bool(self.outputs[output])

    @property
    def title(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return f"{self.name} ({domain}{self.op}, opset {self.version})"

    def error(self, text: str, hint: str | None = None) -> OnnxError:
        return OnnxError(f"node {self.title}: {text}", hint=hint)

    def subgraphs(self) -> Iterator[Graph]:
        for value in self.attributes.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Graph):
                    yield each


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in order, with the names of the values that go in and out.

    Attributes:
        inputs: names, without those that have initializers.
        outputs: names.
        nodes: in an order in which each comes after those whose outputs it reads.
        initializers: the constants of the graph as tensors, with those of `Constant` nodes; keys are names. The graph
            of an attribute, such as the body of a loop, has none: the graph of the model holds all constants.
        bound: in the graph of an attribute, the name of each of its constants → that in the graph of the model.
        types: the types and shapes that the file declares, by value name.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, torch.Tensor]
    types: Mapping[str, onnx.TypeProto] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def constants(self) -> dict[str, torch.Tensor | Known]:
        """The initializers as values of nodes."""
        return {name: known(tensor) or tensor for name, tensor in self.initializers.items()}

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of the graph and of those inside."""
        for node in self.nodes:
            yield node
            for graph in node.subgraphs():
                yield from graph.all_nodes()

    @cached_property
    def read(self) -> frozenset[str]:
        """Names of all values that its nodes read, and those that it returns."""
        names = {name for node in self.nodes for name in node.inputs}
        names.update(name for node in self.nodes for graph in node.subgraphs() for name in graph.free)
        return frozenset(names | {*self.outputs, *self.bound.values()})

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Names of values from outside that the graph reads, in order."""
        made = {*self.inputs, *self.initializers, *self.bound}
        found: dict[str, None] = dict.fromkeys(self.bound.values())
        for node in self.nodes:
            for name in (*node.inputs, *(n for graph in node.subgraphs() for n in graph.free)):
                if name and name not in made:
                    found[name] = None
            made.update(node.outputs)
        for name in self.outputs:
            if name not in made:
                found[name] = None
        return tuple(found)


def _array(value: torch.Tensor) -> Any:
    """As a numpy array, which has no bfloat16."""
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


class GraphReader:
    """Makes graphs of protos.

    Args:
        versions: the opset of each domain that the model imports.
        tensor: reads a tensor.
    """

    def __init__(self, versions: Mapping[str, int], tensor: Any) -> None:
        self._versions = versions
        self._tensor = tensor
        self._inner: dict[str, torch.Tensor] = {}
        self._types: dict[str, onnx.TypeProto] = {}

    def read_model(self, proto: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> Graph:
        """The graph of a model, with the constants of all graphs inside; `outer` are names of values besides.

        Raises: as `read`.
        """
        graph = self.read(proto, outer)
        graph = replace(graph, initializers={**graph.initializers, **self._inner})
        # Before tensors are traced, which have no values then.
        _ = graph.constants
        return graph

    def read(self, proto: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> Graph:
        """The graph; `outer` are names of values outside of it.

        Raises:
            OnnxError: a node reads what no node before it computes, or a type is not supported.
        """
        initializers = {tensor.name: self._tensor(tensor) for tensor in proto.initializer}
        for tensor in proto.initializer:
            self._types[tensor.name] = onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=tensor.data_type))
        if proto.sparse_initializer:
            for sparse in proto.sparse_initializer:
                initializers[sparse.values.name] = self._dense(sparse)
        inputs = tuple(value.name for value in proto.input if value.name not in initializers)
        types = {value.name: value.type for value in (*proto.input, *proto.value_info, *proto.output)}
        self._types |= types
        known = outer | set(inputs) | set(initializers)
        nodes = []
        for node in self._nodes(proto.node, known):
            if (node.domain, node.op) == ("", "Constant"):
                initializers[node.outputs[0]] = _constant(node)
            else:
                nodes.append(node)
        outputs = tuple(value.name for value in proto.output)
        made = known.union(initializers, *(node.outputs for node in nodes))
        for name in outputs:
            if name not in made:
                raise OnnxError(f"the graph {proto.name!r} returns {name!r}, which no node computes")
        return Graph(proto.name, inputs, outputs, tuple(nodes), initializers, types)

    def _read_inside(self, proto: onnx.GraphProto, known: frozenset[str]) -> Graph:
        """A graph in an attribute, its constants among those of the model."""
        graph = self.read(proto, known)
        bound = {}
        for name, tensor in graph.initializers.items():
            place = f"{graph.name}/{name}"
            while place in self._inner or place in known:
                place += "_"
            self._inner[place] = tensor
            bound[name] = place
        return replace(graph, initializers={}, bound=bound)

    def _nodes(self, protos: Sequence[onnx.NodeProto], known: frozenset[str]) -> list[Node]:
        nodes: list[Node] = []
        for proto in protos:
            unknown = [name for name in proto.input if name and name not in known]
            if unknown:
                raise OnnxError(
                    f"the node {proto.name or proto.op_type!r} reads {unknown[0]!r}, which no node before it computes"
                )
            nodes.append(self._node(proto, known))
            known = known | set(proto.output)
        return nodes

    def _node(self, proto: onnx.NodeProto, known: frozenset[str]) -> Node:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        name = proto.name or f"{proto.op_type}_{next((o for o in proto.output if o), '')}"
        attributes = {a.name: self._attribute(a, known) for a in proto.attribute}
        version = self._versions.get(domain, 1)
        types = tuple(self._types[n].tensor_type.elem_type if n in self._types else 0 for n in proto.input)
        arrays = {n: _array(v) for n, v in attributes.items() if domain == ML and isinstance(v, torch.Tensor)}
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        return Node(name, domain, proto.op_type, version, inputs, outputs, attributes, types, arrays)

    def _attribute(self, proto: onnx.AttributeProto, known: frozenset[str]) -> Any:
        match proto.type:
            case AttributeProto.FLOAT:
                return proto.f
            case AttributeProto.INT:
                return proto.i
            case AttributeProto.STRING:
                return proto.s.decode(errors="replace")
            case AttributeProto.TENSOR:
                return self._tensor(proto.t)
            case AttributeProto.GRAPH:
                return self._read_inside(proto.g, known)
            case AttributeProto.SPARSE_TENSOR:
                return self._dense(proto.sparse_tensor)
            case AttributeProto.FLOATS:
                return list(proto.floats)
            case AttributeProto.INTS:
                return list(proto.ints)
            case AttributeProto.STRINGS:
                return [each.decode(errors="replace") for each in proto.strings]
            case AttributeProto.TENSORS:
                return [self._tensor(each) for each in proto.tensors]
            case AttributeProto.GRAPHS:
                return [self._read_inside(each, known) for each in proto.graphs]
            case AttributeProto.TYPE_PROTO:
                return proto.tp
        raise OnnxError(f"the attribute {proto.name!r} has the unknown type {proto.type}")

    def _dense(self, proto: onnx.SparseTensorProto) -> torch.Tensor:
        values, indices = self._tensor(proto.values), self._tensor(proto.indices)
        dense = torch.zeros(list(proto.dims), dtype=values.dtype)
        flat = dense.reshape(-1)
        if indices.dim() == 2:
            steps = torch.tensor(dense.stride(), dtype=torch.int64)
            indices = (indices * steps).sum(1)
        flat[indices] = values
        return dense


def _constant(node: Node) -> torch.Tensor:
    for name, dtype in _CONSTANTS.items():
        if name in node.attributes:
            value = node.attributes[name]
            return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype)
    raise node.error("its value is not a tensor of numbers", hint="strings are not supported")


_CONSTANTS = {
    "value": None,
    "sparse_value": None,
    "value_int": torch.int64,
    "value_ints": torch.int64,
    "value_float": torch.float32,
    "value_floats": torch.float32,
}


def type_text(proto: onnx.TypeProto) -> str:
    """`FLOAT[batch, 3]`, for messages."""
    if proto.HasField("tensor_type"):
        sizes = [
            d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in proto.tensor_type.shape.dim
        ]
        return f"{dtypes.name_of(proto.tensor_type.elem_type)}[{', '.join(sizes)}]"
    return str(proto.WhichOneof("value"))
