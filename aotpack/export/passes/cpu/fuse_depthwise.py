"""Makes one call of a depthwise convolution and the pointwise ones around it, where what is between them is large.

MobileNets widen an image by a pointwise convolution, filter its channels, and narrow it again. In one call a few rows
of the wide image are in the cache at a time (csrc/kernels/depthwise_block.cpp), and it is never written to memory.
Whether that is faster, the cost model says, or measurements (aotpack/costs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
import torch.fx

from aotpack.costs.costs import current_costs
from aotpack.costs.model import runs_in_bands
from aotpack.costs.shapes import BlockShape
from aotpack.export import ops
from aotpack.export.ir import regions
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.symbolic_shapes.hints import size_hint

# The one before, the depthwise one, and the one behind.
_Parts = tuple[torch.fx.Node | None, torch.fx.Node, torch.fx.Node | None]

# Of the time of the convolutions one by one.
_LEAST_GAIN = 0.02


def fuse_depthwise(program: Program) -> Program:
    """Each with the pointwise convolution before it, the one behind it, or both, where nothing else reads between."""
    rewriter = Rewriter(program)
    costs = current_costs()
    weights = sum({str(n.target): _bytes(n) for n in regions.constants(rewriter.graph_module)}.values())
    nodes = [node for node in rewriter.nodes(ops.packed_conv) if _is_depthwise(node)]
    # All at once, as measurements take turns.
    shapes = sorted({_shape(*parts) for node in nodes for parts in _possible(node)})
    times = dict(zip(shapes, costs.times(shapes, weights=weights), strict=True))
    for node in nodes:
        parts = _parts(node)
        if parts is None or not _goes_in_bands(parts):
            continue
        shape = _shape(*parts)
        told = times[shape]
        is_faster = told.is_faster("fused", "parts", least=_LEAST_GAIN)
        costs.chose(shape, "fused" if is_faster else "parts")
        if not is_faster:
            continue
        others = " and ".join(part.name for part in parts if part is not None and part is not node)
        rewriter.report(node, f"one call with {others}: {told.describe('fused', 'parts')}")
        last = parts[-1] or node
        rewriter.replace(last, rewriter.call(ops.depthwise_block, _arguments(*parts), last))
    return rewriter.finish("fuse-depthwise", f"fused {rewriter.changed} blocks of depthwise convolutions")


def _parts(node: torch.fx.Node) -> _Parts | None:
    """A depthwise convolution with the pointwise ones before and behind it; None where there are none."""
    arguments = bound_arguments(node)
    expand, project = _before(arguments), _behind(node, arguments)
    return None if expand is None and project is None else (expand, node, project)


def _possible(node: torch.fx.Node) -> list[_Parts]:
    """What `_parts` says, and what it will say where the one before belongs to another block by then."""
    parts = _parts(node)
    if parts is None:
        return []
    expand, _, project = parts
    found = [parts]
    if expand is not None and project is not None and _is_depthwise(bound_arguments(expand)["x"]):
        found.append((None, node, project))
    return [each for each in found if _goes_in_bands(each)]


def _goes_in_bands(parts: _Parts) -> bool:
    """Otherwise the kernel for blocks goes in parts in any case."""
    return runs_in_bands(_shape(*parts), 1)


def _arguments(expand: torch.fx.Node | None, node: torch.fx.Node, project: torch.fx.Node | None) -> tuple[Any, ...]:
    none: dict[str, Any] = {"weight": None, "bias": None, "act": 0}
    first, own = none if expand is None else bound_arguments(expand), bound_arguments(node)
    third = none if project is None else bound_arguments(project)
    last = own if project is None else third
    return (
        own["x"] if expand is None else first["x"],
        first["weight"],
        first["bias"],
        own["weight"],
        own["bias"],
        third["weight"],
        third["bias"],
        last["residual"],
        last["out_channels"],
        own["kernel"],
        own["stride"],
        own["padding"],
        own["dilation"],
        [first["act"], own["act"], third["act"]],
    )


def _is_depthwise(node: object) -> bool:
    if not isinstance(node, torch.fx.Node) or node.target is not ops.packed_conv:
        return False
    # The only packed weights of two dims.
    return len(shape_of(node)) == 4 and len(shape_of(bound_arguments(node)["weight"])) == 2


def _before(arguments: dict[str, Any]) -> torch.fx.Node | None:
    """The pointwise convolution whose result only the depthwise one reads, and only filters."""
    node = arguments["x"]
    if not _is_pointwise(node) or len(node.users) != 1 or arguments["residual"] is node:
        return None
    return node if bound_arguments(node)["residual"] is None else None


def _behind(node: torch.fx.Node, arguments: dict[str, Any]) -> torch.fx.Node | None:
    """The pointwise convolution that is the only reader of the depthwise one."""
    if len(node.users) != 1 or arguments["residual"] is not None:
        return None
    reader = next(iter(node.users))
    if not _is_pointwise(reader):
        return None
    other = bound_arguments(reader)
    return reader if other["x"] is node and other["residual"] is not node else None


def _is_pointwise(node: object) -> TypeGuard[torch.fx.Node]:
    if not isinstance(node, torch.fx.Node) or node.target is not ops.packed_conv or len(shape_of(node)) != 4:
        return False
    arguments = bound_arguments(node)
    ones = all(n == 1 for name in ("kernel", "stride") for n in arguments[name])
    plain = not arguments["transposed"] and arguments["groups"] == 1 and not any(arguments["padding"])
    return ones and plain and len(shape_of(arguments["weight"])) == 5


def _shape(expand: torch.fx.Node | None, node: torch.fx.Node, project: torch.fx.Node | None) -> BlockShape:
    arguments = bound_arguments(node)
    x, y = shape_of(arguments["x"]), shape_of(node)
    images, channels, *image = (size_hint(size) for size in x)
    _, _, *result = (size_hint(size) for size in y)
    inputs = channels if expand is None else size_hint(shape_of(bound_arguments(expand)["x"])[1])
    outputs = channels if project is None else size_hint(shape_of(project)[1])
    return BlockShape(
        dtype_of(node).itemsize,
        images,
        inputs,
        channels,
        outputs,
        _pair(image),
        _pair(result),
        _pair(arguments["kernel"]),
        _pair(arguments["stride"]),
        _pair(arguments["padding"]),
        _pair(arguments["dilation"]),
        expand is not None,
        project is not None,
    )


def _pair(numbers: Sequence[Any]) -> tuple[int, int]:
    """Of height and width: what is before each, where there are four; one number is that of both."""
    return int(numbers[0]), int(numbers[0] if len(numbers) == 1 else numbers[1])


def _bytes(constant: torch.fx.Node) -> int:
    value: torch.Tensor = constant.meta["val"]
    return value.numel() * value.element_size()
