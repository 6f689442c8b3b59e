"""Replaces each remaining batch norm by a multiplication and an addition with constants."""

from __future__ import annotations

from functools import partial

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, is_contiguous, same_strides, shape_of
from aotpack.export.passes.patterns.batch_norms import BATCH_NORMS, Affine, BatchNorm, batch_norm_of

aten = torch.ops.aten


def scale_batch_norm(program: Program) -> Program:
    """Replaces batch norms with constant running statistics by `x * scale + shift`."""
    rewriter = Rewriter(program)
    known: dict[object, tuple[torch.fx.Node, torch.fx.Node]] = {}
    for node in rewriter.nodes(*BATCH_NORMS):
        norm = batch_norm_of(rewriter, node)
        if norm is None or len(shape_of(norm.input)) < 2:
            continue
        result = norm.result()
        dtype = dtype_of(norm.input)
        # As eager: halves are normalised in single precision and rounded once.
        arithmetic = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        scale, shift = _constants(rewriter, norm, arithmetic, known)
        x = norm.input if dtype == arithmetic else rewriter.call(aten.to.dtype, (norm.input, arithmetic), node)
        y = rewriter.call(aten.mul.Tensor, (x, scale), node)
        y = rewriter.call(aten.add.Tensor, (y, shift), node)
        if dtype_of(result) != arithmetic:
            y = rewriter.call(aten.to.dtype, (y, dtype_of(result)), node)
        if not same_strides(y, result) and is_contiguous(result.meta["val"]):
            # Views behind the norm were traced over its strides; a norm of a sliced tensor is dense.
            y = rewriter.call(aten.clone.default, (y,), node, memory_format=torch.contiguous_format)
        if not same_strides(y, result):
            continue
        rewriter.report(node, "is a scale and a shift")
        norm.replace(rewriter, y)
    return rewriter.finish("scale-batch-norm", f"made scales and shifts of {rewriter.changed} batch norms")


def _constants(
    rewriter: Rewriter, norm: BatchNorm, dtype: torch.dtype, known: dict[object, tuple[torch.fx.Node, torch.fx.Node]]
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Scale and shift, [c, 1, …]; a norm that is called twice has one pair."""
    spatial = len(shape_of(norm.input)) - 2
    key = (tuple(node.target for node in norm.statistics), norm.affine, dtype, spatial)
    if key not in known:
        name = str(norm.statistics[0].target).lstrip("_").removesuffix("running_mean").rstrip("._") or "norm"
        known[key] = (
            rewriter.derive(
                f"{name}_scale", "folded", partial(_scale, norm.affine, dtype, spatial), norm.statistics, norm.node
            ),
            rewriter.derive(
                f"{name}_shift", "folded", partial(_shift, norm.affine, dtype, spatial), norm.statistics, norm.node
            ),
        )
    return known[key]


def _scale(affine: Affine, dtype: torch.dtype, spatial: int, *statistics: torch.Tensor) -> torch.Tensor:
    return affine.scale_and_shift(statistics)[0].to(dtype).reshape(-1, *([1] * spatial))


def _shift(affine: Affine, dtype: torch.dtype, spatial: int, *statistics: torch.Tensor) -> torch.Tensor:
    return affine.scale_and_shift(statistics)[1].to(dtype).reshape(-1, *([1] * spatial))
