"""Removes dropout at inference; dropout in training mode stays, a random operator like others."""

from __future__ import annotations

import operator

import torch

from aotpack.export.editing import Editor, bound_arguments
from aotpack.export.program import Program

aten = torch.ops.aten

_DROPOUT = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)


def remove_dropout(program: Program) -> Program:
    """Replaces dropout outside of training, or of probability 0, by its argument."""
    editor = Editor(program)
    for node in editor.nodes(*_DROPOUT):
        arguments = bound_arguments(node)
        if not arguments["train"] or arguments["p"] == 0:
            editor.report(node, "dropout removed")
            editor.replace(node, arguments["input"])
    for node in editor.nodes(aten.native_dropout.default):
        arguments = bound_arguments(node)
        # Here no `train` at all means training.
        if arguments["train"] is not False and arguments["p"] != 0:
            continue
        if any(user.target is not operator.getitem for user in node.users):
            continue
        editor.report(node, "dropout removed")
        for user in list(node.users):
            if user.args[1] == 0:
                editor.replace(user, arguments["input"])
            else:
                # The mask, which a backward reads: nothing was dropped.
                kept = editor.call(aten.ones_like.default, (arguments["input"],), user, dtype=torch.bool)
                editor.replace(user, kept)
        editor.graph.erase_node(node)
    return editor.finish("remove-dropout", f"removed {editor.changed} dropouts")
