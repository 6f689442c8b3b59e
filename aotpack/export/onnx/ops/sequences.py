"""Sequences, which are lists of Python while a model is captured, and optionals, which are values or None."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export.onnx.base.errors import NotConstantError
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known, as_tensor
from aotpack.export.onnx.ops.shapes import plain_numbers

Tensor = torch.Tensor


@operator("SequenceEmpty")
def sequence_empty(node: Node) -> list[Any]:
    return []


@operator("SequenceConstruct", known=tuple(range(64)))
def sequence_construct(node: Node, *items: Any) -> list[Any]:
    return list(items)


@operator("SequenceLength")
def sequence_length(node: Node, items: list[Any]) -> Known:
    return Known.of(len(items))


def _position(node: Node, items: list[Any], position: Any, *, most: int) -> int:
    place = int(plain_numbers(node, position, "its position is")[0])
    if not -len(items) <= place <= most:
        raise node.error(f"the position {place} is out of range: the sequence has {len(items)} elements")
    return place + len(items) if place < 0 else place


@operator("SequenceAt", known=(1,))
def sequence_at(node: Node, items: list[Any], position: Any) -> Any:
    if isinstance(position, Tensor) and items and len({(tuple(t.shape), t.dtype) for t in map(as_tensor, items)}) == 1:
        place = position.reshape(1).to(torch.int64)
        place = torch.where(place < 0, place + len(items), place)
        return torch.stack([as_tensor(item) for item in items]).index_select(0, place).squeeze(0)
    return items[_position(node, items, position, most=len(items) - 1)]


@operator("SequenceInsert", known=(1, 2))
def sequence_insert(node: Node, items: list[Any], item: Any, position: Any = None) -> list[Any]:
    place = len(items) if position is None else _position(node, items, position, most=len(items))
    return [*items[:place], item, *items[place:]]


@operator("SequenceErase", known=(1,))
def sequence_erase(node: Node, items: list[Any], position: Any = None) -> list[Any]:
    place = len(items) - 1 if position is None else _position(node, items, position, most=len(items) - 1)
    return [*items[:place], *items[place + 1 :]]


@operator("ConcatFromSequence")
def concat_from_sequence(node: Node, items: list[Any]) -> Tensor:
    tensors = [as_tensor(item) for item in items]
    function = torch.stack if node.get("new_axis", 0) else torch.cat
    return function(tensors, node.require("axis"))


@operator("SplitToSequence", known=(1,))
def split_to_sequence(node: Node, x: Tensor, split: Any = None) -> list[Any]:
    axis = node.get("axis", 0)
    count = x.shape[axis]
    if split is None:
        if not isinstance(count, int):
            raise NotConstantError(f"node {node.title}: the number of parts is not constant")
        parts = torch.split(x, 1, axis)
        return [part if node.get("keepdims", 1) else part.squeeze(axis) for part in parts]
    sizes = plain_numbers(node, split, "the sizes of its parts are")
    return list(torch.split(x, sizes if split.shape else int(sizes[0]), axis))


@operator("Optional", known=(0,))
def optional(node: Node, value: Any = None) -> Any:
    return value


@operator("OptionalHasElement", known=(0,))
def optional_has_element(node: Node, value: Any = None) -> Known:
    return Known.of(value is not None, torch.bool)


@operator("OptionalGetElement", known=(0,))
def optional_get_element(node: Node, value: Any = None) -> Any:
    if value is None:
        raise node.error("the optional is empty")
    return value
