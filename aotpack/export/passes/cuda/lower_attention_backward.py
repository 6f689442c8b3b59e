"""Rewrites attention with gradients that has no kernel: the forward as attention, the backward as matrix products.

With P = softmax(scale q k' + mask) and y = P v (Dao et al. 2022, "FlashAttention", appendix B.2, with P in memory):

- dv = P' dy
- dP = dy v'
- dS = P (dP - rowsum(P dP))
- dq = scale dS k and dk = scale dS' q

P is computed again, so that the forward needs no other result than y. Products are of single precision for halves,
too: differences of dP and its sum lose digits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.passes.patterns.attention_backward import BACKWARD, FORWARD, AttentionCall, attention_call

aten = torch.ops.aten


def lower_attention_backward(program: Program) -> Program:
    """Replaces attention without dropout whose backward is in the graph; other passes choose its kernels."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(BACKWARD):
        attention = attention_call(node)
        if attention is None:
            continue
        gradients = _gradients(rewriter, attention, node)
        rewriter.report(node, "gradients of attention as products")
        for user in list(node.users):
            rewriter.replace(user, gradients[int(user.args[1])])  # type: ignore[arg-type]
    rewriter.remove_dead_code()
    for node in rewriter.nodes(FORWARD):
        attention = attention_call(node)
        # The backward that is left needs the sums of the softmax.
        if attention is None or any(user.args[1] != 0 for user in node.users):
            continue
        for user in list(node.users):
            arguments = (attention.q, attention.k, attention.v, attention.mask, 0.0, attention.is_causal)
            more = {"scale": attention.scale, "enable_gqa": attention.repeats > 1}
            rewriter.report(node, "attention whose gradients are products")
            rewriter.replace(user, rewriter.call(aten.scaled_dot_product_attention.default, arguments, node, **more))
    return rewriter.finish(
        "lower-attention-backward", f"rewrote {rewriter.changed} results of attention with gradients"
    )


def _gradients(rewriter: Rewriter, a: AttentionCall, node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """Of queries, keys and values."""
    dtype = dtype_of(a.q)
    precise = torch.float64 if dtype == torch.float64 else torch.float32

    def call(op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        return rewriter.call(op, args, node, **kwargs)

    def operand(value: torch.fx.Node) -> torch.fx.Node:
        return value if dtype == precise else call(aten.to.dtype, value, precise)

    def repeated(value: torch.fx.Node) -> torch.fx.Node:
        """Once for each head of the queries."""
        value = operand(value)
        if a.repeats == 1:
            return value
        value = call(aten.expand.default, call(aten.unsqueeze.default, value, 2), [-1, -1, a.repeats, -1, -1])
        return call(aten.flatten.using_ints, value, 1, 2)

    def gathered(gradient: torch.fx.Node) -> torch.fx.Node:
        if a.repeats > 1:
            heads = call(aten.unflatten.int, gradient, 1, [shape_of(a.k)[1], a.repeats])
            gradient = call(aten.sum.dim_IntList, heads, [2])
        return result(gradient)

    def result(gradient: torch.fx.Node) -> torch.fx.Node:
        return gradient if dtype == precise else call(aten.to.dtype, gradient, dtype)

    def turned(value: torch.fx.Node) -> torch.fx.Node:
        return call(aten.transpose.int, value, -2, -1)

    q, k, v, dy = operand(a.q), repeated(a.k), repeated(a.v), operand(bound_arguments(node)["grad_out"])
    scores = call(aten.mul.Tensor, call(aten.matmul.default, q, turned(k)), a.scale)
    if a.mask is not None and dtype_of(a.mask) == torch.bool:
        scores = call(aten.masked_fill.Scalar, scores, call(aten.logical_not.default, a.mask), -math.inf)
    elif a.mask is not None:
        scores = call(aten.add.Tensor, scores, operand(a.mask))
    if a.is_causal:
        later = call(aten.triu.default, call(aten.ones_like.default, scores, dtype=torch.bool), 1)
        scores = call(aten.masked_fill.Scalar, scores, later, -math.inf)
    # Rows without keys are zero.
    p = call(aten._safe_softmax.default, scores, -1)
    dp = call(aten.matmul.default, dy, turned(v))
    sums = call(aten.sum.dim_IntList, call(aten.mul.Tensor, p, dp), [-1], True)
    ds = call(aten.mul.Tensor, call(aten.mul.Tensor, p, call(aten.sub.Tensor, dp, sums)), a.scale)
    return (
        result(call(aten.matmul.default, ds, k)),
        gathered(call(aten.matmul.default, turned(ds), q)),
        gathered(call(aten.matmul.default, turned(p), dy)),
    )
