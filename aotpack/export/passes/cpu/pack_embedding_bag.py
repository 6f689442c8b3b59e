"""Uses the kernel for embedding bags of which only the pooled result is read."""

from __future__ import annotations

import operator

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of

aten = torch.ops.aten

_OPERATORS = (aten.embedding_bag.default, aten.embedding_bag.padding_idx, aten._embedding_bag_forward_only.default)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def pack_embedding_bag(program: Program) -> Program:
    """Replaces `embedding_bag` over fp32, bf16 or fp16 tables by `aotpack::embedding_bag`, of one result."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_OPERATORS):
        readers = [user for user in node.users if user.users]
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in readers):
            continue
        arguments = bound_arguments(node)
        weight, indices = arguments["weight"], arguments["indices"]
        if dtype_of(weight) not in _DTYPES or len(shape_of(indices)) != 1:
            continue
        padding = arguments["padding_idx"]
        padding = -1 if padding is None else padding
        rows = shape_of(weight)[0]
        if padding < 0 and node.target is aten.embedding_bag.padding_idx and arguments["padding_idx"] is not None:
            padding += rows  # torch counts a negative padding_idx from the end
        call = (
            weight,
            indices,
            arguments["offsets"],
            arguments["mode"],
            arguments["per_sample_weights"],
            bool(arguments["include_last_offset"]),
            padding,
        )
        rewriter.report(node, "one kernel")
        pooled = rewriter.call(ops.embedding_bag, call, node)
        for user in list(node.users):
            if user.args[1] == 0:
                rewriter.replace(user, pooled)
            else:
                rewriter.graph.erase_node(user)
        rewriter.graph.erase_node(node)
    return rewriter.finish("pack-embedding-bag", f"sent {rewriter.changed} embedding bags to one kernel")
