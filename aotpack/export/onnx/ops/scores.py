"""Scores of classical models: their transforms, and the classes that they mean."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node

Tensor = torch.Tensor

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transformed(node: Node, scores: Tensor, name: Any = None) -> Tensor:
    """Scores [rows, classes] by the node's `post_transform`, a name or the number of one."""
    name = node.get("post_transform", "NONE") if name is None else name
    if isinstance(name, int):
        if not 0 <= name < len(_TRANSFORMS):
            raise node.error(f"post_transform {name} is unknown")
        name = _TRANSFORMS[name]
    match name:
        case "NONE":
            return scores
        case "SOFTMAX":
            return torch.softmax(scores, -1)
        case "LOGISTIC":
            return torch.sigmoid(scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return probit(scores)
    raise node.error(f"post_transform {name!r} is unknown")


def _softmax_zero(scores: Tensor) -> Tensor:
    """Softmax in which zeros stay zeros."""
    most = scores.amax(-1, keepdim=True)
    powers = torch.where(scores.abs() > 1e-7, torch.exp(scores - most), scores * torch.exp(-most))
    total = powers.sum(-1, keepdim=True)
    return torch.where(total == 0, torch.full_like(powers, 0.5), powers / total)


def probit(x: Tensor) -> Tensor:
    """The quantile of the normal distribution, by the approximation that ONNX Runtime has (Winitzki's)."""
    y = 2 * x - 1
    log = torch.log((1 - y) * (1 + y))
    v = 2 / (math.pi * 0.147) + 0.5 * log
    root = torch.sqrt(-v + torch.sqrt(v * v - log / 0.147))
    return math.sqrt(2) * torch.where(y < 0, -root, root)


def labels_of(node: Node, places: Tensor, integers: list[int] | None, strings: list[str] | None) -> Tensor:
    """The labels of classes, by their numbers.

    Raises:
        OnnxError: they are strings, and the output is read.
    """
    if integers:
        if integers == list(range(len(integers))):
            return places
        return torch.tensor(integers, dtype=torch.int64)[places]
    if strings and node.wants(0):
        raise node.error(
            "its labels are strings, which are not supported",
            hint="train with integer labels, or remove the output of labels: the scores are in the order of "
            f"{strings[:5]}",
        )
    return places
