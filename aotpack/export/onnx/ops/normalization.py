"""Normalization and dropout."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.onnx.base.values import Known

Tensor = torch.Tensor
functional = torch.nn.functional


@operator("BatchNormalization")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, ...]:
    epsilon, momentum = node.get("epsilon", 1e-5), node.get("momentum", 0.9)
    training = bool(node.get("training_mode", 0)) and node.version >= 14
    if not training:
        if not scale.dtype == mean.dtype == x.dtype:
            result = functional.batch_norm(
                x.float(), mean.float(), var.float(), scale.float(), bias.float(), eps=epsilon
            )
            return (result.to(x.dtype),)
        return (functional.batch_norm(x, mean, var, scale, bias, eps=epsilon),)
    axes = [0, *range(2, x.dim())]
    shape = [1, -1] + [1] * (x.dim() - 2)
    own_mean, own_var = x.mean(axes), x.var(axes, correction=0)
    y = (x - own_mean.reshape(shape)) / torch.sqrt(own_var.reshape(shape) + epsilon)
    y = y * scale.reshape(shape) + bias.reshape(shape)
    return y, mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum)


@operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = node.get("axis", -1) % x.dim()
    epsilon = node.get("epsilon", 1e-5)
    shape = list(x.shape[axis:])
    wanted = node.wants(1) or node.wants(2)
    if not wanted and list(scale.shape) == shape and (bias is None or list(bias.shape) == shape):
        return (functional.layer_norm(x, shape, scale, bias, epsilon),)
    exact = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes = list(range(axis, x.dim()))
    mean = exact.mean(axes, keepdim=True)
    centered = exact - mean
    inverse = torch.rsqrt((centered * centered).mean(axes, keepdim=True) + epsilon)
    y = (centered * inverse).to(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axis = node.get("axis", -1) % x.dim()
    exact = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes = list(range(axis, x.dim()))
    y = exact * torch.rsqrt((exact * exact).mean(axes, keepdim=True) + node.get("epsilon", 1e-5))
    return y.to(x.dtype) * scale


@operator("GroupNormalization", since=18)
def group_normalization_of_groups(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = node.require("num_groups")
    each = x.shape[1] // groups
    repeated = (scale.repeat_interleave(each), bias.repeat_interleave(each))
    return functional.group_norm(x, groups, *repeated, node.get("epsilon", 1e-5))


@operator("GroupNormalization", since=21)
def group_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.group_norm(x, node.require("num_groups"), scale, bias, node.get("epsilon", 1e-5))


@operator("LRN")
def lrn(node: Node, x: Tensor) -> Tensor:
    size, alpha = node.require("size"), node.get("alpha", 1e-4)
    beta, k = node.get("beta", 0.75), node.get("bias", 1.0)
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = functional.pad(x * x, [0, 0] * (x.dim() - 2) + [low, high])
    total = squares.unfold(1, size, 1).sum(-1)
    return x / torch.pow(k + alpha / size * total, beta)


@operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, node.get("p", 2), dim=node.get("axis", -1), keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> Tensor:
    axes = node.get("axes", [0, 2, 3])
    mean = x.mean(axes, keepdim=True)
    deviation = torch.sqrt((x * x).mean(axes, keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@operator("Dropout")
def dropout(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("Dropout", since=12, known=(2,))
def dropout_by_inputs(
    node: Node, x: Tensor, ratio: Tensor | None = None, training: Any = None
) -> tuple[Tensor, Tensor]:
    everything = torch.ones_like(x, dtype=torch.bool)
    if training is None or (isinstance(training, Known) and training.is_plain() and not training.values.item()):
        return x, everything
    share = torch.full([], 0.5) if ratio is None else ratio.reshape([]).float()
    kept = torch.rand(x.shape) >= share
    dropped = torch.where(kept, x / (1 - share).to(x.dtype), torch.zeros_like(x))
    if isinstance(training, Known):
        return dropped, kept
    return torch.where(training, dropped, x), torch.where(training, kept, everything)
