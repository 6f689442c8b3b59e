"""Keys and values that are repeated for the heads of a group."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments, shape_of
from aotpack.export.passes.patterns.moves import COPIES
from aotpack.export.symbolic_shapes.dims import expression

aten = torch.ops.aten

_RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)


def unrepeated(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor [batch, heads, length, dim] of which `node` has each head several times in a row, else `node` itself.

    Recognizes `repeat_interleave` and what transformers writes: a view with a dim behind the heads, expanded.
    """
    if node.target is aten.repeat_interleave.self_int:
        arguments = bound_arguments(node)
        source = arguments["self"]
        return source if arguments["dim"] in (1, -3) and len(shape_of(source)) == 4 else node
    if node.target not in _RESHAPES or len(shape_of(node)) != 4:
        return node
    expanded = node.args[0]
    while isinstance(expanded, torch.fx.Node) and expanded.target in COPIES:
        expanded = expanded.args[0]
    if not isinstance(expanded, torch.fx.Node) or expanded.target is not aten.expand.default:
        return node
    view = expanded.args[0]
    if not isinstance(view, torch.fx.Node) or view.target is not aten.unsqueeze.default:
        return node
    source, dim = view.args[:2]
    if not isinstance(source, torch.fx.Node) or dim not in (2, -3) or len(shape_of(source)) != 4:
        return node
    before, spread, after = ([expression(size) for size in shape_of(t)] for t in (source, expanded, node))
    if len(spread) != 5 or spread[:2] + spread[3:] != before:
        return node
    return source if after == [before[0], before[1] * spread[2], *before[2:]] else node


def of_groups(k: torch.fx.Node, v: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Keys and values, without what repeats them for the heads of a group: kernels read each once."""
    keys, values = unrepeated(k), unrepeated(v)
    heads = [shape_of(tensor)[1] for tensor in (k, keys, values)]
    fits = all(isinstance(count, int) for count in heads) and heads[1] == heads[2] and heads[1] > 0
    return (keys, values) if fits and heads[0] % heads[1] == 0 else (k, v)
