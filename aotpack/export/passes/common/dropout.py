"""Removes dropout at inference; dropout in training mode stays as a random operator."""

from __future__ import annotations

import operator

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments

aten = torch.ops.aten

_DROPOUT = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)


def remove_dropout(program: Program) -> Program:
    """Replaces dropout outside of training, or of probability 0, by its argument."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*_DROPOUT):
        arguments = bound_arguments(node)
        if not arguments["train"] or arguments["p"] == 0:
            rewriter.report(node, "dropout removed")
            rewriter.replace(node, arguments["input"])
    for node in rewriter.nodes(aten.native_dropout.default):
        arguments = bound_arguments(node)
        # Here no `train` at all means training.
        if arguments["train"] is not False and arguments["p"] != 0:
            continue
        if any(user.target is not operator.getitem for user in node.users):
            continue
        rewriter.report(node, "dropout removed")
        for user in list(node.users):
            if user.args[1] == 0:
                rewriter.replace(user, arguments["input"])
            else:
                # The mask, which a backward reads: nothing was dropped.
                kept = rewriter.call(aten.ones_like.default, (arguments["input"],), user, dtype=torch.bool)
                rewriter.replace(user, kept)
        rewriter.graph.erase_node(node)
    return rewriter.finish("remove-dropout", f"removed {rewriter.changed} dropouts")
