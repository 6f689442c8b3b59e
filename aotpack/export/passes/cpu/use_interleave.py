"""Recognizes channel shuffles, as in ShuffleNet, which interleave the channels of groups: a view with the groups as a
dim, a transposition of groups and channels, and a view without it; or torch's operators.

Between packed convolutions, channels lie side by side. The transposition then moves single channels of each pixel,
which one kernel does together with the concatenation that often comes before. It reads chunks where they lie.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, same_sizes, shape_of
from aotpack.export.passes.cpu.layouts.operators import channels_last_calls
from aotpack.export.passes.patterns.moves import COPIES, RESHAPES

aten = torch.ops.aten

_SHUFFLES = (aten.channel_shuffle.default, aten.native_channel_shuffle.default)


def use_interleave(program: Program) -> Program:
    """Replaces channel shuffles by `aotpack::interleave`, in programs with packed convolutions."""
    rewriter = Rewriter(program)
    if not channels_last_calls(rewriter.graph):
        return program
    for node in rewriter.nodes(*_SHUFFLES, *RESHAPES):
        found = _shuffled(node)
        if found is None:
            continue
        x, groups = found
        rewriter.report(node, f"interleaves {groups} groups of channels")
        rewriter.replace(node, rewriter.call(ops.interleave, (_parts(rewriter, x, groups, node),), node))
    return rewriter.finish("use-interleave", f"found {rewriter.changed} channel shuffles")


def _shuffled(node: torch.fx.Node) -> tuple[torch.fx.Node, int] | None:
    """What a node shuffles, and the number of groups."""
    if node.target in _SHUFFLES:
        x, groups = bound_arguments(node).values()
        return (x, groups) if _fits(x, groups) else None
    turned = _through_copies(node.args[0])
    if turned is None or not _swaps_groups(turned):
        return None
    split = _through_copies(turned.args[0])
    if split is None or split.target not in RESHAPES:
        return None
    source: Any = split.args[0]
    groups = shape_of(split)[1]
    if not _fits(source, groups):
        return None
    sizes = shape_of(source)
    grouped = (sizes[0], groups, sizes[1] // groups, *sizes[2:])
    fits = same_sizes(shape_of(split), grouped) and same_sizes(shape_of(node), sizes)
    return (source, groups) if fits else None


def _fits(x: Any, groups: Any) -> bool:
    """Whether x is [n, c, *spatial] of a known c that divides into more than one group."""
    if not isinstance(x, torch.fx.Node) or len(shape_of(x)) < 3 or not isinstance(groups, int):
        return False
    channels = shape_of(x)[1]
    return isinstance(channels, int) and groups > 1 and channels > 0 and channels % groups == 0


def _through_copies(node: Any) -> torch.fx.Node | None:
    while isinstance(node, torch.fx.Node) and node.target in COPIES:
        node = node.args[0]
    return node if isinstance(node, torch.fx.Node) and node.op == "call_function" else None


def _swaps_groups(node: torch.fx.Node) -> bool:
    """Whether it transposes dims 1 and 2."""
    if node.target is aten.permute.default:
        rank = len(shape_of(node))
        dims = [d % rank for d in bound_arguments(node)["dims"]]
        return dims == [0, 2, 1, *range(3, rank)]
    if node.target in (aten.transpose.int, aten.swapaxes.default, aten.swapdims.default):
        _, *dims = bound_arguments(node).values()
        return {d % len(shape_of(node)) for d in dims} == {1, 2}
    return False


def _parts(rewriter: Rewriter, x: torch.fx.Node, groups: int, before: torch.fx.Node) -> list[torch.fx.Node]:
    """The groups: what is concatenated to them, or slices."""
    each = shape_of(x)[1] // groups
    if x.target is aten.cat.default:
        parts, dim = bound_arguments(x).values()
        rank = len(shape_of(x))
        alike = all(len(shape_of(part)) == rank and same_sizes(shape_of(part)[1:2], (each,)) for part in parts)
        if dim % rank == 1 and alike and all(part.meta["val"].dtype == x.meta["val"].dtype for part in parts):
            return list(parts)
    return [rewriter.call(aten.slice.Tensor, (x, 1, i * each, (i + 1) * each), before) for i in range(groups)]
