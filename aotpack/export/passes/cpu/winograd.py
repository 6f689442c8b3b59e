"""Transforms weights of 3 x 3 convolutions, where the saved time is worth the additional bytes.

Winograd's F(2 x 2, 3 x 3) takes 16 products for four outputs instead of 36, of weights that are 16/9 as large
(csrc/kernels/conv_winograd.cpp). The archive may grow by a tenth, so the layers are chosen that save most time for a
byte: early ones, whose weights are small and whose images are large.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir import regions
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, shape_of
from aotpack.export.ops.weight_packing import PANEL, transform_conv
from aotpack.export.symbolic_shapes.hints import size_hint

_GROWTH = 0.1  # of the bytes of all constants, at most
_LEAST_GAIN = 0.1  # of the convolution's time

# What costs as much as how many multiply-adds, by measurement: transforming a tile of 4 x 4 for one channel, in or out,
# and reading a byte of a weight that is in no cache.
_TRANSFORM = 128
_BYTE = 7


@dataclass(frozen=True)
class _Choice:
    """The convolutions that share a packed weight, and what transforming it would bring.

    Attributes:
        weight: a node of the packed weight.
        convolutions: all its readers.
        saved: time, in multiply-adds.
        grown: bytes.
    """

    weight: torch.fx.Node
    convolutions: tuple[torch.fx.Node, ...]
    saved: float
    grown: int


def use_winograd(program: Program) -> Program:
    """Transforms weights of 3 x 3 convolutions that then need fewer multiplications."""
    rewriter = Rewriter(program)
    constants: dict[str, list[torch.fx.Node]] = {}
    for node in regions.constants(rewriter.graph_module):
        constants.setdefault(str(node.target), []).append(node)
    room = _GROWTH * sum(_bytes(nodes[0].meta["val"]) for nodes in constants.values())
    choices = [choice for nodes in constants.values() if (choice := _choice(rewriter, nodes)) is not None]
    taken = []
    for choice in sorted(choices, key=lambda choice: -choice.saved / choice.grown):
        if choice.grown <= room:
            room -= choice.grown
            taken.append(choice)
    first = next(iter(rewriter.graph.nodes))
    for choice in choices:
        if choice in taken:
            _transform(rewriter, choice, first)
    return rewriter.finish("use-winograd", f"transformed the weights of {rewriter.changed} convolutions")


def _transform(rewriter: Rewriter, choice: _Choice, before: torch.fx.Node) -> None:
    attribute = str(choice.weight.target)
    # Its own node may stand behind the first convolution that reads the weight.
    with rewriter.graph.inserting_before(before):
        packed = rewriter.graph.get_attr(attribute)
    packed.meta["val"] = choice.weight.meta["val"]
    name = attribute.strip("_").removeprefix("packed_")
    transformed = rewriter.derive(f"winograd_{name}", "packed", transform_conv, [packed], before)
    for node in choice.convolutions:
        x, _, *others = node.args
        node.args = (x, transformed, *others)
        rewriter.report(node, f"takes 16 products instead of 36, with {choice.grown / 1024:.0f} KB more of weights")
        rewriter.changed += 1


def _choice(rewriter: Rewriter, constants: list[torch.fx.Node]) -> _Choice | None:
    """None where the kernel cannot, or where it would not be faster.

    `constants` are all nodes of one constant: a reader of another kind would need the weight as it is too.
    """
    weight = constants[0]
    packed = rewriter.constant(weight)
    readers = tuple(node for constant in constants for node in constant.users)
    if packed is None or not readers or not all(_can(node) and node.args[1] in constants for node in readers):
        return None
    direct = sum(_direct(node) for node in readers)
    grown = _bytes(packed) * 7 // 9
    saved = direct - sum(_transformed(node) for node in readers) - _BYTE * grown * len(readers)
    return _Choice(weight, readers, saved, grown) if saved >= _LEAST_GAIN * direct else None


def _can(node: torch.fx.Node) -> bool:
    if node.target is not ops.packed_conv:
        return False
    arguments = bound_arguments(node)
    return (
        list(arguments["kernel"]) == [3, 3]
        and list(arguments["stride"]) == [1, 1]
        and list(arguments["dilation"]) == [1, 1]
        and arguments["groups"] == 1
        and not arguments["transposed"]
        and as_node(arguments["weight"]).meta["val"].dim() == 5
        and dtype_of(as_node(arguments["x"])) == torch.float32
    )


def _channels(node: torch.fx.Node) -> tuple[int, int]:
    """Inputs, and outputs in whole panels."""
    return int(shape_of(as_node(node.args[0]))[1]), -(-int(shape_of(node)[1]) // PANEL) * PANEL


def _direct(node: torch.fx.Node) -> float:
    images, _, high, wide = (size_hint(size) for size in shape_of(node))
    inputs, outputs = _channels(node)
    return 9.0 * images * high * wide * inputs * outputs


def _transformed(node: torch.fx.Node) -> float:
    images, _, high, wide = (size_hint(size) for size in shape_of(node))
    inputs, outputs = _channels(node)
    tiles = images * -(-high // 2) * -(-wide // 2)
    return float(tiles) * (16 * inputs * outputs + _TRANSFORM * (inputs + outputs))


def _bytes(constant: torch.Tensor) -> int:
    return constant.numel() * constant.element_size()
