"""The `spec` trees of the manifest: JSON → Python, strictly."""

from __future__ import annotations

from aotpack.archive.node import Node, unique
from aotpack.spec import (
    CallSpec,
    DataclassSpec,
    DictSpec,
    Key,
    ListSpec,
    NamedTupleSpec,
    Spec,
    TensorLeaf,
    TupleSpec,
    ValueLeaf,
)


def decode_call(node: Node, num_tensors: int) -> CallSpec:
    """The root of an `in_spec`."""
    if not isinstance(node.value, dict) or node.value.get("kind") != "call":
        node.fail('expected an object of kind "call"')
    members = node.object("kind", "args", "names", "kwargs")
    args = tuple(decode_spec(item, num_tensors) for item in members["args"].list())
    names = tuple(None if item.value is None else item.string(empty=True) for item in members["names"].list())
    if len(names) != len(args):
        members["names"].fail(f"{len(names)} names for {len(args)} arguments")
    kwargs = members["kwargs"].object("keys", "items")
    keys, items = _pairs(kwargs["keys"], kwargs["items"], num_tensors)
    unique([(members["names"], name) for name in (*(name for name in names if name is not None), *keys)])
    return CallSpec(args, names, keys, items)


def decode_spec(node: Node, num_tensors: int) -> Spec:
    """A spec below the root, or an `out_spec`."""
    if not isinstance(node.value, dict):
        node.fail("expected an object")
    kind = node.value.get("kind")
    if kind == "tensor":
        return TensorLeaf(node.object("kind", "index")["index"].index(num_tensors, "tensors"))
    if kind == "value":
        value = node.object("kind", "value")["value"]
        if value.value is not None and not isinstance(value.value, (bool, int, float, str)):
            value.fail("expected null, a bool, a number or a string")
        return ValueLeaf(value.value)
    if kind == "float":
        return ValueLeaf(float(node.object("kind", "value")["value"].choice("inf", "-inf", "nan")))
    if kind in ("tuple", "list"):
        items = tuple(decode_spec(i, num_tensors) for i in node.object("kind", "items")["items"].list())
        return TupleSpec(items) if kind == "tuple" else ListSpec(items)
    if kind == "dict":
        members = node.object("kind", "keys", "items")
        dict_keys = tuple(_key(item) for item in members["keys"].list())
        return DictSpec(dict_keys, _items(members["keys"], dict_keys, members["items"], num_tensors))
    if kind in ("namedtuple", "dataclass"):
        members = node.object("kind", "type", "keys", "items")
        type_name = members["type"].string()
        module, colon, name = type_name.partition(":")
        if not (module and colon and name):
            members["type"].fail(f'{type_name!r} is not "module:QualName"')
        keys, items = _pairs(members["keys"], members["items"], num_tensors)
        return (NamedTupleSpec if kind == "namedtuple" else DataclassSpec)(type_name, keys, items)
    node.fail(f"unknown kind {kind!r}")


def _pairs(keys_node: Node, items_node: Node, num_tensors: int) -> tuple[tuple[str, ...], tuple[Spec, ...]]:
    keys = tuple(item.string(empty=True) for item in keys_node.list())
    return keys, _items(keys_node, keys, items_node, num_tensors)


def _key(node: Node) -> Key:
    return node.string(empty=True) if isinstance(node.value, str) else node.integer()


def _items(keys_node: Node, keys: tuple[Key, ...], items_node: Node, num_tensors: int) -> tuple[Spec, ...]:
    unique([(keys_node, key) for key in keys])
    items = tuple(decode_spec(item, num_tensors) for item in items_node.list())
    if len(keys) != len(items):
        items_node.fail(f"{len(items)} items for {len(keys)} keys")
    return items
