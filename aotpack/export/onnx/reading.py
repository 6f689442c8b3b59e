"""Reads ONNX files: parsed, checked, functions inlined, constants apart from the graph."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx.checker
import onnx.defs
import onnx.inliner
import torch
from google.protobuf.message import DecodeError
from onnx import TensorProto

from aotpack.export.onnx import inline
from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.base.graph import Graph, GraphReader
from aotpack.export.onnx.base.table import CONTRIB, find
from aotpack.export.onnx.external import TensorReader
from aotpack.export.onnx.messages import graphs, inner_tensors, nodes, texts
from aotpack.export.onnx.trial import bytes_from_fork

# Bytes of a constant from which it is kept out of what onnx's checker and inliner copy.
_LARGE = 1024
# Nodes of a model whose functions are inlined: functions that call functions grow without bounds.
_MOST_NODES = 1_000_000
_OLDEST = 1

Data = Callable[[int], memoryview | None]
ModelLike = str | os.PathLike[str] | bytes | onnx.ModelProto


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model that was read.

    Attributes:
        name: of the file, or of the graph.
        graph: with all functions inlined.
        versions: opsets by domain.
        metadata: the producer, and the model's own properties.
    """

    name: str
    graph: Graph
    versions: Mapping[str, int]
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_model(source: ModelLike) -> OnnxModel:
    """Reads and checks a model.

    Raises:
        OnnxError: it is malformed, or its data is not where it says; see `TensorReader`.
        OSError: the file cannot be read.
    """
    proto, data, folder, name = _parsed(source)
    tensor = TensorReader(folder)
    versions = _versions(proto)
    large = _taken_apart(proto, tensor, data)
    proto = onnx.ModelProto.FromString(bytes_from_fork(lambda: _typed(proto), "the check of onnx"))
    versions |= _versions(proto)
    graph = GraphReader(versions, tensor).read_model(proto.graph, frozenset(large))
    inputs = tuple(name for name in graph.inputs if name not in large)
    initializers = {**large, **graph.initializers}
    graph = Graph(graph.name, inputs, graph.outputs, graph.nodes, initializers, graph.types)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    for key in ("producer_name", "producer_version", "domain", "doc_string"):
        if getattr(proto, key):
            metadata.setdefault(key, getattr(proto, key))
    return OnnxModel(name or graph.name or "model", graph, versions, metadata)


def _parsed(source: ModelLike) -> tuple[onnx.ModelProto, Data, Path | None, str]:
    """The model, the data of initializers that it lacks, its folder and its name."""
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return copy, lambda place: None, None, ""
    if isinstance(source, bytes):
        whole = inline.of_bytes(source)
        return _decoded(whole.message, "the model"), whole.data, None, ""
    if not isinstance(source, (str, os.PathLike)):
        raise OnnxError(
            f"the model is a {type(source).__name__}", hint="pass the path of an .onnx file or an onnx.ModelProto"
        )
    path = Path(source)
    whole = inline.of_file(path)
    return _decoded(whole.message, os.fspath(path)), whole.data, path.resolve().parent, path.stem


def _decoded(data: bytes, what: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise OnnxError(f"{what} is not an ONNX file: {error}") from error
    if not proto.HasField("graph") or not proto.ir_version:
        raise OnnxError(f"{what} is not an ONNX model: it has no graph")
    # Protobuf gives what is not UTF-8 as bytes.
    for text in texts(proto):
        if not isinstance(text, str):
            raise OnnxError(f"{what} is not an ONNX model: the name {text!r} is not UTF-8")
    return proto


def _versions(proto: onnx.ModelProto) -> dict[str, int]:
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    newest = onnx.defs.onnx_opset_version()
    own = versions.get("", newest)
    if not _OLDEST <= own <= newest:
        raise OnnxError(
            f"the model is of opset {own}; supported are {_OLDEST} to {newest}, the newest of the installed onnx",
            hint="update the package onnx" if own > newest else "convert it with onnx.version_converter",
        )
    return versions


def _taken_apart(proto: onnx.ModelProto, read: TensorReader, data: Data) -> dict[str, torch.Tensor]:
    """Takes large constants out of the graph, which has inputs instead; small ones of other files are put in."""
    large: dict[str, torch.Tensor] = {}
    kept: list[onnx.TensorProto] = []
    inputs = {value.name for value in proto.graph.input}
    for place, tensor in enumerate(proto.graph.initializer):
        raw = data(place)
        external = tensor.data_location == TensorProto.EXTERNAL
        if raw is None and not external and tensor.ByteSize() < _LARGE:
            kept.append(tensor)
            continue
        if tensor.name in large:
            raise OnnxError(f"the initializer {tensor.name!r} is defined twice")
        large[tensor.name] = read(tensor, raw)
        tensor.ClearField("raw_data")
        if tensor.name not in inputs:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            proto.graph.input.append(info)
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(copies)
    for tensor in inner_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            value = read(tensor)
            if value.dtype in (torch.bfloat16,) or not dtypes.is_supported(tensor.data_type):
                raise OnnxError(f"the tensor {tensor.name!r} of an attribute is in another file")
            inner = value.contiguous().numpy().tobytes()
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT
            tensor.raw_data = inner
    return large


# Operators of ONNX Runtime that its tools write without their domain.
_WITHOUT_DOMAIN = ("SimplifiedLayerNormalization",)


def _checked(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with domains where some tools leave them out."""
    for node in proto.graph.node:
        if not node.domain and node.op_type in _WITHOUT_DOMAIN:
            node.domain = CONTRIB
    used = any(node.domain == CONTRIB for node in proto.graph.node)
    if used and all(opset.domain != CONTRIB for opset in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError, RuntimeError, RecursionError) as error:
        raise OnnxError(f"the model is invalid: {_brief(error)}") from error
    return proto


def _typed(proto: onnx.ModelProto) -> bytes:
    """The checked model without functions, with the types of its values."""
    data: bytes = _with_types(_inlined(_checked(proto))).SerializeToString()
    return data


def _with_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its values.

    Raises:
        OnnxError: a node has inputs of types that its operator does not take.
    """
    _check_dims(proto)
    _check_ranks(proto)
    _check_equations(proto)
    try:
        return onnx.shape_inference.infer_shapes(proto, check_type=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise OnnxError(f"the types of the model are wrong: {_brief(error)}") from error


def _check_dims(proto: onnx.ModelProto) -> None:
    """Makes dims of -1 unknown ones, as some tools mean them, and refuses other negative ones.

    Type inference would read memory by them.
    """
    for graph in graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in (dim for shape in _shapes(value.type) for dim in shape.dim):
                if dim.dim_value < -1:
                    raise OnnxError(f"the value {value.name!r} has a dim of {dim.dim_value}")
                if dim.dim_value == -1:
                    dim.ClearField("dim_value")


def _shapes(of: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto]:
    kind = of.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield getattr(of, kind).shape
    elif kind in ("sequence_type", "optional_type"):
        yield from _shapes(getattr(of, kind).elem_type)


_EQUATION = re.compile(r"[A-Za-z.,\s]*(->[A-Za-z.\s]*)?")


def _check_equations(proto: onnx.ModelProto) -> None:
    """Refuses equations of Einsum with other characters: type inference does not end with them."""
    for node in nodes(proto.graph):
        if node.op_type != "Einsum":
            continue
        for attribute in node.attribute:
            text = attribute.s.decode(errors="replace")
            if attribute.name == "equation" and not _EQUATION.fullmatch(text):
                raise OnnxError(f"the node {node.name or node.op_type!r} has the equation {text!r}")


# Operators with an input that is a shape, for whose result onnx makes as many dims as the shape has elements.
_OF_SHAPES = {"Expand", "ConstantOfShape", "Reshape", "AffineGrid", "MaxUnpool", "CenterCropPad", "Tile", "Resize"}
_MOST_DIMS = 1 << 20


def _check_ranks(proto: onnx.ModelProto) -> None:
    """Refuses results with more dims than memory holds."""
    long = {
        value.name
        for graph in graphs(proto.graph)
        for value in (*graph.input, *graph.value_info)
        if any(dim.dim_value > _MOST_DIMS for dim in value.type.tensor_type.shape.dim)
        and len(value.type.tensor_type.shape.dim) == 1
    }
    for node in nodes(proto.graph) if long else ():
        if node.op_type in _OF_SHAPES and not long.isdisjoint(list(node.input)[node.op_type != "ConstantOfShape" :]):
            raise OnnxError(f"the node {node.name or node.op_type!r} has a result with too many dims")


def _brief(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(error).__name__


# ---- functions ------------------------------------------------------------------------------------------------------


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without calls of functions: its own, and those of ONNX that have no definition here."""
    if proto.functions:
        _check_growth(proto)
        try:
            proto = onnx.inliner.inline_local_functions(proto, convert_version=False)
        except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
            raise OnnxError(f"the functions of the model cannot be inlined: {_brief(error)}") from error
    versions = _versions(proto)
    for _ in range(8):
        missing = sorted({key for key in _operators(proto) if _has_body(key, versions)})
        if not missing:
            break
        _state_defaults(proto, set(missing), versions)
        try:
            proto = onnx.inliner.inline_selected_functions(proto, missing, inline_schema_functions=True)
        except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
            raise OnnxError(f"the functions of the model cannot be inlined: {_brief(error)}") from error
    return proto


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


def _operators(proto: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    return map(_key, nodes(proto.graph))


def _state_defaults(proto: onnx.ModelProto, keys: set[tuple[str, str]], versions: Mapping[str, int]) -> None:
    """States the defaults of attributes, which the inliner does not pass to the bodies of functions."""
    for node in nodes(proto.graph):
        if _key(node) not in keys:
            continue
        stated = {attribute.name for attribute in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, versions.get(_key(node)[0], 1), _key(node)[0])
        for name, attribute in schema.attributes.items():
            if name not in stated and attribute.default_value.name:
                node.attribute.append(attribute.default_value)


def _has_body(key: tuple[str, str], versions: Mapping[str, int]) -> bool:
    domain, name = key
    version = versions.get(domain, 1)
    if find(domain, name, version) is not None or not onnx.defs.has(name, domain):
        return False
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return False
    described: Any = schema
    return bool(described.has_function or described.has_context_dependent_function)


def _check_growth(proto: onnx.ModelProto) -> None:
    """Refuses functions that call themselves, or each other so often that the graph has no end."""
    functions = {(f.domain, f.name): f for f in proto.functions}
    under_way: set[tuple[str, str]] = set()

    @cache
    def count(key: tuple[str, str]) -> int:
        if key in under_way:
            raise OnnxError(f"the function {key[1]!r} calls itself")
        under_way.add(key)
        total = sum(
            count((n.domain, n.op_type)) if (n.domain, n.op_type) in functions else 1 for n in functions[key].node
        )
        under_way.discard(key)
        return total

    try:
        total = sum(count(key) if key in functions else 1 for key in _operators(proto))
    except RecursionError as error:
        raise OnnxError("the functions of the model are nested too deeply") from error
    if total > _MOST_NODES:
        raise OnnxError(f"the model has {total} nodes once its functions are inlined; the most are {_MOST_NODES}")
