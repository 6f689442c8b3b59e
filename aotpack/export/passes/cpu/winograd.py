"""Transforms weights of 3 x 3 convolutions, where the saved time is worth the additional bytes.

Winograd's F(2 x 2, 3 x 3) takes 16 products for four outputs instead of 36, of weights that are 16/9 as large;
F(4 x 4, 3 x 3) takes 36 for sixteen instead of 144, of weights that are 4 times as large
(csrc/kernels/conv_winograd.cpp). How much time that saves, the cost model says, or measurements (aotpack/costs). The
archive may grow by a quarter, so steps from one algorithm to another are taken that save most time for a byte: early
layers, whose weights are small and whose images are large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.fx

from aotpack.costs.costs import Times, current_costs
from aotpack.costs.shapes import ConvShape
from aotpack.export import ops
from aotpack.export.ir import regions
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, shape_of
from aotpack.export.ops.weight_packing import transform_conv_2x2, transform_conv_4x4
from aotpack.export.symbolic_shapes.hints import size_hint

_GROWTH = 0.25  # of the bytes of all constants, at most
_LEAST_GAIN = 0.1  # of the convolution's time, for each step to larger weights


@dataclass(frozen=True)
class _Form:
    """A form of a packed weight.

    Attributes:
        elements: of each kernel.
        transform: of the packed weight.
        about: in words, what it saves.
    """

    elements: int
    transform: Callable[[torch.Tensor], torch.Tensor] | None = None
    about: str = ""


_FORMS = {
    "direct": _Form(9),
    "winograd_2x2": _Form(16, transform_conv_2x2, "takes 16 products instead of 36"),
    "winograd_4x4": _Form(36, transform_conv_4x4, "takes 36 products instead of 144"),
}


@dataclass(frozen=True)
class _Choice:
    """The convolutions that share a packed weight.

    Attributes:
        weight: a node of the packed weight.
        convolutions: all its readers.
        shapes: of these.
        size: bytes of the weight.
    """

    weight: torch.fx.Node
    convolutions: tuple[torch.fx.Node, ...]
    shapes: tuple[ConvShape, ...]
    size: int

    def grown(self, algorithm: str) -> int:
        """Bytes by which the weight grows."""
        return self.size // 9 * _FORMS[algorithm].elements - self.size


def use_winograd(program: Program) -> Program:
    """Transforms weights of 3 x 3 convolutions that then take less time."""
    rewriter = Rewriter(program)
    constants: dict[str, list[torch.fx.Node]] = {}
    for node in regions.constants(rewriter.graph_module):
        constants.setdefault(str(node.target), []).append(node)
    weights = sum(_bytes(nodes[0].meta["val"]) for nodes in constants.values())
    choices = [choice for nodes in constants.values() if (choice := _choice(rewriter, nodes)) is not None]
    costs = current_costs()
    shapes = sorted({shape for choice in choices for shape in choice.shapes})
    times = dict(zip(shapes, costs.times(shapes, weights=weights), strict=True))
    algorithms = _algorithms(choices, [_times(choice, times) for choice in choices], _GROWTH * weights)
    first = next(iter(rewriter.graph.nodes))
    for choice, algorithm in zip(choices, algorithms, strict=True):
        for shape in choice.shapes:
            costs.chose(shape, algorithm)
        if algorithm != "direct":
            _transform(rewriter, choice, algorithm, first, times)
    return rewriter.finish("use-winograd", f"transformed the weights of {rewriter.changed} convolutions")


def _algorithms(choices: Sequence[_Choice], times: Sequence[Times], room: float) -> list[str]:
    """Of each choice, where all together may grow by `room` bytes: one step after the other, of those that save enough
    and for which there is room that which saves most time for a byte.
    """
    found = ["direct"] * len(choices)
    while True:
        best: tuple[float, int, str] | None = None
        for index, (choice, each) in enumerate(zip(choices, times, strict=True)):
            now = found[index]
            for algorithm in _FORMS:
                grown = choice.grown(algorithm) - choice.grown(now)
                if not 0 < grown <= room or not each.is_faster(algorithm, now, least=_LEAST_GAIN):
                    continue
                saved = (each.seconds[now] - each.seconds[algorithm]) / grown
                if best is None or saved > best[0]:
                    best = saved, index, algorithm
        if best is None:
            return found
        _, index, algorithm = best
        room -= choices[index].grown(algorithm) - choices[index].grown(found[index])
        found[index] = algorithm


def _times(choice: _Choice, times: Mapping[ConvShape, Times]) -> Times:
    """Of all its convolutions together."""
    return reduce(Times.plus, (times[shape] for shape in choice.shapes))


def _transform(
    rewriter: Rewriter, choice: _Choice, algorithm: str, before: torch.fx.Node, times: Mapping[ConvShape, Times]
) -> None:
    attribute, form = str(choice.weight.target), _FORMS[algorithm]
    assert form.transform is not None
    # Its own node may stand behind the first convolution that reads the weight.
    with rewriter.graph.inserting_before(before):
        packed = rewriter.graph.get_attr(attribute)
    packed.meta["val"] = choice.weight.meta["val"]
    name = attribute.strip("_").removeprefix("packed_")
    transformed = rewriter.derive(f"winograd_{name}", "packed", form.transform, [packed], before)
    for node, shape in zip(choice.convolutions, choice.shapes, strict=True):
        x, _, *others = node.args
        node.args = (x, transformed, *others)
        about = times[shape].describe(algorithm, "direct")
        grown = f"{choice.grown(algorithm) / 1024:.0f} KB more of weights"
        rewriter.report(node, f"{form.about}, with {grown}: {about}")
        rewriter.changed += 1


def _choice(rewriter: Rewriter, constants: list[torch.fx.Node]) -> _Choice | None:
    """None where the kernel cannot.

    `constants` are all nodes of one constant: a reader of another kind would need the weight as it is too.
    """
    weight = constants[0]
    packed = rewriter.constant(weight)
    readers = tuple(node for constant in constants for node in constant.users)
    if packed is None or not readers or not all(_can(node) and node.args[1] in constants for node in readers):
        return None
    return _Choice(weight, readers, tuple(_shape(node) for node in readers), _bytes(packed))


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


def _shape(node: torch.fx.Node) -> ConvShape:
    x, y = shape_of(as_node(node.args[0])), shape_of(node)
    images, _, *image = (size_hint(size) for size in x)
    *_, high, wide = (size_hint(size) for size in y)
    padding = [int(size) for size in bound_arguments(node)["padding"]]
    # One number is that of both; of four, the last two are what is behind.
    top, left = padding[0], padding[0] if len(padding) == 1 else padding[1]
    return ConvShape(images, int(x[1]), int(y[1]), (image[0], image[1]), (high, wide), (top, left))


def _bytes(constant: torch.Tensor) -> int:
    return constant.numel() * constant.element_size()
