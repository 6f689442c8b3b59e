"""Makes one call of a depthwise convolution and the pointwise ones around it, where what is between them is large.

MobileNets widen an image by a pointwise convolution, filter its channels, and narrow it again. In one call a few rows
of the wide image are in the cache at a time (csrc/kernels/depthwise_block.cpp), and it is never written to memory.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.symbolic_shapes.hints import size_hint

# Bytes of the wide image and of the pointwise weights, as kBandBytes and kWeightBytes of the kernel: what is smaller
# stays in the cache anyway, and larger weights do not.
_LEAST_IMAGE = 384 << 10
_MOST_WEIGHTS = 512 << 10


def fuse_depthwise(program: Program) -> Program:
    """Each with the pointwise convolution before it, the one behind it, or both, where nothing else reads between."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(ops.packed_conv):
        if not _is_depthwise(node):
            continue
        arguments = bound_arguments(node)
        expand, project = _before(arguments), _behind(node, arguments)
        parts = [part for part in (expand, node, project) if part is not None]
        if len(parts) == 1 or not _is_large(parts, expand or node):
            continue
        rewriter.report(node, f"one call with {' and '.join(part.name for part in parts if part is not node)}")
        last = parts[-1]
        rewriter.replace(last, rewriter.call(ops.depthwise_block, _arguments(expand, node, project), last))
    return rewriter.finish("fuse-depthwise", f"fused {rewriter.changed} blocks of depthwise convolutions")


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


def _is_depthwise(node: torch.fx.Node) -> bool:
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


def _is_large(parts: list[torch.fx.Node], wide: torch.fx.Node) -> bool:
    """`wide` is the first whose result has the channels of the depthwise one."""
    element = dtype_of(wide).itemsize
    image = 1
    for size in shape_of(wide):
        image *= size_hint(size)
    weights = sum(shape_of(bound_arguments(part)["weight"]).numel() for part in parts if _is_pointwise(part))
    return image * element > _LEAST_IMAGE and weights * element <= _MOST_WEIGHTS
