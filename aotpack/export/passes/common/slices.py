"""Spells out slices whose bounds lie inside of the dim, which TorchInductor cannot know.

The bounds of such a slice are expressions of dynamic sizes. The capture has asked about them, and calls are checked for
the answers, of which code generation knows only those that are ranges of dims.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, shape_of
from aotpack.export.torch_compat.symbolic_shapes import statically_known_true

aten = torch.ops.aten


def cut_at_bounds(program: Program) -> Program:
    """A slice that the capture found to begin and end inside of the dim becomes a part of a split."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.slice.Tensor):
        arguments = bound_arguments(node)
        source, dim = arguments["self"], arguments["dim"]
        start, end = arguments["start"] or 0, arguments["end"]
        if arguments["step"] != 1 or not isinstance(end, torch.fx.Node):
            continue
        size = shape_of(source)[dim]
        if not _ends_inside(_value(start), _value(end), size, shape_of(node)[dim]):
            continue
        total = rewriter.call(aten.sym_size.int, (source, dim), node) if not isinstance(size, int) else size
        parts: list[Any] = [end, rewriter.call(operator.sub, (total, end), node)]
        if start != 0:
            parts[:1] = [start, rewriter.call(operator.sub, (end, start), node)]
        split = rewriter.call(aten.split_with_sizes.default, (source, parts, dim), node)
        rewriter.report(node, f"ends at {_value(end)}, which is inside of the dim")
        rewriter.replace(node, rewriter.call(operator.getitem, (split, len(parts) - 2), node))
    return rewriter.finish("cut-at-bounds", f"cut {rewriter.changed} values where the capture found the bounds")


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument


def _ends_inside(start: Any, end: Any, size: Any, length: Any) -> bool:
    """Whether the capture has taken `end` for a place in the dim, though its expression does not show that."""
    if not isinstance(end, torch.SymInt) or not statically_known_true(start >= 0):
        return False
    if statically_known_true(end >= 0) and statically_known_true(end <= size):
        return False
    return statically_known_true(length == end - start)
