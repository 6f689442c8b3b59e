"""Embedding bags of which only the pooled result is read."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, as_node, bound_arguments, dtype_of, shape_of
from aotpack.export.torch_compat.symbolic_shapes import statically_known_true

aten = torch.ops.aten

OPERATORS = (aten.embedding_bag.default, aten.embedding_bag.padding_idx, aten._embedding_bag_forward_only.default)


def plain_bags(node: torch.fx.Node, dtypes: tuple[torch.dtype, ...]) -> tuple[Any, ...] | None:
    """The arguments of `aotpack::embedding_bag` for a node with one of `OPERATORS`; None where another result is read,
    or the table has another dtype.
    """
    readers = [user for user in node.users if user.users]
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in readers):
        return None
    arguments = bound_arguments(node)
    weight, indices = arguments["weight"], arguments["indices"]
    if dtype_of(weight) not in dtypes or len(shape_of(indices)) != 1:
        return None
    padding = arguments["padding_idx"]
    padding = -1 if padding is None else padding
    if padding < 0 and node.target is aten.embedding_bag.padding_idx and arguments["padding_idx"] is not None:
        padding += shape_of(weight)[0]  # torch counts a negative padding_idx from the end
    return (
        weight,
        indices,
        arguments["offsets"],
        arguments["mode"],
        arguments["per_sample_weights"],
        bool(arguments["include_last_offset"]),
        padding,
    )


def rows_of_indices(call: tuple[Any, ...]) -> torch.fx.Node | None:
    """The indices of bags of one length as a matrix with a row for each bag, as the model has them; None where the
    bags may have other lengths. `call` is what `plain_bags` returns.
    """
    indices, offsets, include_last_offset = call[1], call[2], call[5]
    if indices.target is not aten.reshape.default or offsets.target is not aten.arange.start_step:
        return None
    matrix = indices.args[0]
    if include_last_offset or len(shape_of(matrix)) != 2:
        return None
    length = shape_of(matrix)[1]
    arguments = bound_arguments(offsets)
    start, end, step = (_number(arguments[name]) for name in ("start", "end", "step"))
    if not isinstance(length, int) or length == 0 or (start, step) != (0, length):
        return None
    return as_node(matrix) if statically_known_true(end == shape_of(indices)[0]) else None


def replace_bags(rewriter: Rewriter, node: torch.fx.Node, pooled: torch.fx.Node) -> None:
    """Puts the pooled result in the place of the node's."""
    for user in list(node.users):
        if user.args[1] == 0:
            rewriter.replace(user, pooled)
        else:
            rewriter.graph.erase_node(user)
    rewriter.graph.erase_node(node)


def _number(argument: Any) -> Any:
    """An argument that is a number, or a node that computes one."""
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument
