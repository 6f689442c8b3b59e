"""Quantization that no kernel has taken becomes plain operators."""

from __future__ import annotations

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments

aten = torch.ops.aten


def lower_quantization(program: Program) -> Program:
    """`quantize` and `dequantize` become arithmetic, which code generation fuses with what is around."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(ops.quantize, ops.dequantize):
        x, scale, zero, dtype = (bound_arguments(node).get(name) for name in ("x", "scale", "zero", "dtype"))
        if zero is not None:
            zero = rewriter.call(aten._to_copy.default, (zero,), node, dtype=torch.float32)
        if node.target is ops.quantize:
            info = torch.iinfo(dtype)  # type: ignore[arg-type]
            ratio = rewriter.call(aten.div.Tensor, (x, scale), node)
            value = rewriter.call(aten.round.default, (ratio,), node)
            if zero is not None:
                value = rewriter.call(aten.add.Tensor, (value, zero), node)
            value = rewriter.call(aten.clamp.default, (value, info.min, info.max), node)
            result = rewriter.call(aten._to_copy.default, (value,), node, dtype=dtype)
        else:
            value = rewriter.call(aten._to_copy.default, (x,), node, dtype=torch.float32)
            if zero is not None:
                value = rewriter.call(aten.sub.Tensor, (value, zero), node)
            result = rewriter.call(aten.mul.Tensor, (value, scale), node)
        rewriter.replace(node, result)
    return rewriter.finish("lower-quantization", f"{rewriter.changed} steps of quantization became arithmetic")
