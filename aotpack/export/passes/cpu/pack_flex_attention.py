"""Replaces attention whose scores functions of the model change by the blocked kernel with these functions inside."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import PassReport, Program
from aotpack.export.ir.rewriter import Rewriter, as_node, dtype_of, shape_of
from aotpack.export.ir.score_functions import ScoreFunctions
from aotpack.export.ops.flex_attention import flex_attention, flex_scores, flex_softmax
from aotpack.export.passes.patterns.score_functions import Builder, NotOfScores
from aotpack.export.symbolic_shapes.dims import expression

_NAMES = {torch.float32: "float32", torch.float64: "float64"}


def pack_flex_attention(program: Program) -> Program:
    """Replaces `flex_scores`, what is computed of the scores, and `flex_softmax` by `aotpack::flex_attention`.

    What is no function of single scores stays, and is computed over whole matrices.
    """
    rewriter = Rewriter(program)
    kept = 0
    for node in rewriter.nodes(flex_softmax):
        try:
            arguments = _arguments(node)
        except NotOfScores as reason:
            kept += 1
            rewriter.report(node, f"whole matrix of scores: {reason}")
            continue
        rewriter.report(node, "blocked kernel with the model's functions")
        rewriter.replace(node, rewriter.call(flex_attention, arguments, node))
    summary = f"blocked {rewriter.changed} attentions with functions of scores, {kept} are not"
    if kept and not rewriter.changed:
        return program.with_report(PassReport("pack-flex-attention", summary, tuple(rewriter.changes)))
    return rewriter.finish("pack-flex-attention", summary)


def _arguments(softmax: torch.fx.Node) -> tuple[Any, ...]:
    """The arguments of `flex_attention` for a call of `flex_softmax`.

    Raises:
        NotOfScores: it does not get scores, or they are not changed one by one.
    """
    changed, mask, v, blocks, q_block, kv_block = softmax.args
    scores = _scores_behind(as_node(changed))
    q, k, scale = scores.args
    if dtype_of(as_node(q)) != dtype_of(as_node(v)):
        raise NotOfScores("the values are of another dtype")
    builder = Builder(scores)
    functions = ScoreFunctions(
        _NAMES[dtype_of(scores)],
        builder.function(as_node(changed)) if builder.computes(as_node(changed)) else (),
        builder.function(as_node(mask)) if mask is not None else (),
    )
    return q, k, v, blocks, tuple(builder.operands), tuple(builder.numbers), functions.text(), q_block, kv_block, scale


def _scores_behind(changed: torch.fx.Node) -> torch.fx.Node:
    """The one call of `flex_scores` that a value depends on most closely.

    Raises:
        NotOfScores: there is none, as in a part of a program.
    """
    stack, seen = [changed], {changed}
    found = []
    while stack:
        node = stack.pop()
        if node.target is flex_scores:
            found.append(node)
            continue
        for each in node.all_input_nodes:
            if each not in seen:
                seen.add(each)
                stack.append(each)
    full = [expression(size) for size in shape_of(changed)]
    fitting = [node for node in found if [expression(size) for size in shape_of(node)] == full]
    if not fitting:
        raise NotOfScores("they are not computed in this part of the program")
    # Scores that a captured tensor was computed of come before those that the functions change.
    order = {node: i for i, node in enumerate(changed.graph.nodes)}
    return max(fitting, key=order.__getitem__)
