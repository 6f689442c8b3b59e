"""Products with packed weights."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops import weight_packing
from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.registry import define, unaliased
from aotpack.export.ops.weight_packing import unpack_linear


def _pack_linear(weight: Tensor) -> Tensor:
    return unaliased(weight_packing.pack_linear(weight), weight)


def _pack_linear_fake(weight: Tensor) -> Tensor:
    return weight.new_empty(weight_packing.packed_linear_sizes(weight))


def _pack_conv(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    return unaliased(weight_packing.pack_conv(weight, groups, transposed), weight)


def _pack_conv_fake(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    return weight.new_empty(weight_packing.packed_conv_sizes(weight, groups, transposed))


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out_features: int, act: int
) -> Tensor:
    y = F.linear(x, unpack_linear(weight, out_features), bias)
    return BY_NUMBER[act](y if residual is None else y + residual)


def _linear_fake(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out_features: int, act: int
) -> Tensor:
    return x.new_empty((*x.shape[:-1], out_features))


def _embedding(weight: Tensor, indices: Tensor, rows: int) -> Tensor:
    return F.embedding(indices, unpack_linear(weight, rows))


def _embedding_fake(weight: Tensor, indices: Tensor, rows: int) -> Tensor:
    return weight.new_empty((*indices.shape, weight.shape[1]))


# Weights that are packed while a module runs: those that an update replaces, or that the model computes.
pack_linear = define(
    "pack_linear(Tensor weight) -> Tensor",
    _pack_linear,
    _pack_linear_fake,
)
pack_conv = define(
    "pack_conv(Tensor weight, int groups, bool transposed) -> Tensor",
    _pack_conv,
    _pack_conv_fake,
)
packed_linear = define(
    "packed_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, SymInt out_features, int act) -> Tensor",
    _linear,
    _linear_fake,
)
packed_embedding = define(
    "packed_embedding(Tensor weight, Tensor indices, int rows) -> Tensor",
    _embedding,
    _embedding_fake,
)
