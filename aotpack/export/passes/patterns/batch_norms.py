"""Batch norms over constant running statistics, in all forms that a graph may have."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, bound_arguments

aten = torch.ops.aten

BATCH_NORMS = (
    aten.batch_norm.default,
    aten._native_batch_norm_legit_no_training.default,
    aten.native_batch_norm.default,
    aten._batch_norm_no_update.default,
    aten.cudnn_batch_norm.default,
    aten.miopen_batch_norm.default,
)


@dataclass(frozen=True)
class Affine:
    """A recipe's arithmetic: y = scale * x + shift per channel, in double.

    Attributes:
        present: whether the norm has a weight and a bias.
        eps: added to the variance.
    """

    present: tuple[bool, bool]
    eps: float

    def scale_and_shift(self, statistics: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of mean, variance and, where present, weight and bias, each [c]."""
        mean, var, *rest = (tensor.double() for tensor in statistics)
        scale = torch.rsqrt(var + self.eps)
        if self.present[0]:
            scale = scale * rest.pop(0)
        shift = -mean * scale
        return scale, shift + rest.pop(0) if self.present[1] else shift


@dataclass(frozen=True)
class BatchNorm:
    """A batch norm at inference.

    Attributes:
        node: the call.
        input: what is normalised; channels are its dim 1.
        statistics: `get_attr` nodes of mean, variance and, where present, weight and bias, each [c].
        affine: what they make.
    """

    node: torch.fx.Node
    input: torch.fx.Node
    statistics: tuple[torch.fx.Node, ...]
    affine: Affine

    def result(self) -> torch.fx.Node:
        """The node of the normalised tensor; the functional forms return it with saved statistics."""
        return self.node if self.node.target is aten.batch_norm.default else _read(self.node)[0]

    def replace(self, rewriter: Rewriter, by: torch.fx.Node) -> None:
        """All readers of the norm become readers of `by`."""
        if self.node.target is not aten.batch_norm.default:
            for part in list(self.node.users):
                part.replace_all_uses_with(by)
                rewriter.graph.erase_node(part)
        rewriter.replace(self.node, by)


def batch_norm_of(rewriter: Rewriter, node: torch.fx.Node) -> BatchNorm | None:
    """The norm that a call computes; None where its statistics are those of the batch, or no constants."""
    arguments: dict[str, Any] = bound_arguments(node)
    if arguments.get("training"):
        return None
    if node.target is not aten.batch_norm.default and [part.args[1:] for part in _read(node)] != [(0,)]:
        return None  # something reads the saved statistics: a backward
    optional = (arguments["weight"], arguments["bias"])
    present = (optional[0] is not None, optional[1] is not None)
    statistics = (arguments["running_mean"], arguments["running_var"], *(v for v in optional if v is not None))
    if any(rewriter.constant(value) is None for value in statistics):
        return None
    eps = arguments["eps"] if "eps" in arguments else arguments["epsilon"]
    return BatchNorm(node, arguments["input"], statistics, Affine(present, eps))


def _read(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Those of the results of a functional form that something reads."""
    return [part for part in node.users if part.target is not operator.getitem or part.users]
