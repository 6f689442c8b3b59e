"""Attention with gradients becomes calls of this project's kernels, forward and backward."""

from __future__ import annotations

import operator

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.passes.patterns.attention_backward import BACKWARD, AttentionCall, attention_call, forward_of
from aotpack.export.passes.patterns.repeated_heads import of_groups

aten = torch.ops.aten


def use_attention_backward(program: Program) -> Program:
    """Replaces the backward of attention by `aotpack::cuda_attention_backward`, and its forward by one that keeps what
    this needs; what they do not compute becomes products.
    """
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import attention, attention_backward

    def fits(call: AttentionCall) -> bool:
        masks = (torch.bool, torch.float32, dtype_of(call.q))
        return (
            dtype_of(call.q) in attention.DTYPES
            and shape_of(call.q)[3] <= attention.LARGEST_DIM
            and (call.mask is None or dtype_of(call.mask) in masks)
        )

    rewriter = Rewriter(program)
    results: dict[torch.fx.Node, tuple[torch.fx.Node, torch.fx.Node]] = {}
    # Before any of them changes: several may have one forward.
    for node, forward in [(node, forward_of(node)) for node in rewriter.nodes(BACKWARD)]:
        call = attention_call(node)
        if call is None or forward is None or not fits(call) or attention_call(forward) != call:
            continue
        how = (call.mask, call.is_causal, call.scale)
        if forward not in results:
            both = rewriter.call(attention.WITH_STATISTICS, (call.q, *of_groups(call.k, call.v), *how), forward)
            y, statistics = (rewriter.call(operator.getitem, (both, i), forward) for i in range(2))
            results[forward] = y, statistics
            rewriter.report(forward, "attention by our kernel")
            for user in list(forward.users):
                if user.args[1] == 0:
                    rewriter.replace(user, y)
        y, statistics = results[forward]
        dy = bound_arguments(node)["grad_out"]
        arguments = (dy, call.q, call.k, call.v, call.mask, y, statistics, call.is_causal, call.scale)
        gradients = rewriter.call(attention_backward.OPERATOR, arguments, node)
        rewriter.report(node, "gradients of attention by our kernels")
        for user in list(node.users):
            rewriter.replace(user, rewriter.call(operator.getitem, (gradients, user.args[1]), node))
    return rewriter.finish("use-attention-backward", f"{len(results)} attentions with gradients by our kernels")
