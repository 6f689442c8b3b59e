"""Folds a batch norm with running statistics into the convolution or product before it.

y = (conv(x) - mean) * gamma / sqrt(var + eps) + beta is conv with weights scaled per output channel. The arithmetic is
done in double and rounded once, to the convolution's own dtype (M. Jacob et al. 2017, section 3.2, states the same
folding). A convolution that something else reads too is not computed twice: its norm stays a scale and a shift, which
costs less.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of
from aotpack.export.passes.patterns.batch_norms import BATCH_NORMS, Affine, BatchNorm, batch_norm_of
from aotpack.export.passes.patterns.producers import Channels, Producer, producer_of


def fold_batch_norm(program: Program) -> Program:
    """Folds every batch norm over a convolution or product with constant weights that it alone reads."""
    rewriter = Rewriter(program)
    known: dict[object, tuple[torch.fx.Node, torch.fx.Node]] = {}
    for node in rewriter.nodes(*BATCH_NORMS):
        norm = batch_norm_of(rewriter, node)
        producer = producer_of(rewriter, norm.input) if norm is not None else None
        if norm is None or producer is None or producer.axis != 1 or len(producer.node.users) != 1:
            continue  # among others a linear over sequences: the norm's channels are not the weight's outputs
        if dtype_of(norm.result()) != dtype_of(producer.node):
            continue
        weight, bias = _folded(rewriter, norm, producer, known)
        rewriter.report(node, f"folded into {producer.weight.target}")
        norm.replace(rewriter, producer.again(rewriter, weight, bias, node))
    return rewriter.finish("fold-batch-norm", f"folded {rewriter.changed} batch norms into the weights before them")


def _folded(
    rewriter: Rewriter, norm: BatchNorm, producer: Producer, known: dict[object, tuple[torch.fx.Node, torch.fx.Node]]
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Weight and bias; a module that is called twice has one pair."""
    bias = () if producer.bias is None else (producer.bias,)
    given = (producer.weight, *norm.statistics, *bias)
    factors = (producer.alpha, producer.beta)
    # Nodes of one attribute differ; their targets do not.
    key = (tuple(node.target for node in given), norm.affine, producer.layout, bool(bias), factors)
    if key not in known:
        name = str(producer.weight.target).lstrip("_")
        weight = partial(_weight, norm.affine, producer.layout, producer.alpha)
        shift = partial(_bias, norm.affine, producer.beta, len(norm.statistics))
        known[key] = (
            rewriter.derive(f"{name}_bn", "folded", weight, given[: 1 + len(norm.statistics)], norm.node),
            rewriter.derive(f"{name}_bn_bias", "folded", shift, given, norm.node),
        )
    return known[key]


def _weight(
    affine: Affine, layout: Channels, alpha: float, weight: torch.Tensor, *statistics: torch.Tensor
) -> torch.Tensor:
    scale, _ = affine.scale_and_shift(statistics)
    return layout.scale(weight.double(), scale * alpha).to(weight.dtype)


def _bias(affine: Affine, beta: float, count: int, weight: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    scale, shift = affine.scale_and_shift(tensors[:count])
    for bias in tensors[count:]:
        shift = shift + scale * (bias.double() * beta).reshape(-1)
    return shift.to(weight.dtype)
