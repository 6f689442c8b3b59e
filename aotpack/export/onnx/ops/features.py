"""Preparation of features: the operators of `ai.onnx.ml` beside models."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import ML, operator

Tensor = torch.Tensor

_LOGGER = logging.getLogger(__name__)


def _floating(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


@operator("Scaler", domain=ML)
def scaler(node: Node, x: Tensor) -> Tensor:
    x = _floating(x)
    offset = torch.tensor(node.get("offset") or [0.0], dtype=x.dtype)
    scale = torch.tensor(node.get("scale") or [1.0], dtype=x.dtype)
    return ((x - offset) * scale).to(torch.float32)


@operator("Normalizer", domain=ML)
def normalizer(node: Node, x: Tensor) -> Tensor:
    x = _floating(x)
    match node.get("norm", "MAX"):
        case "MAX":
            size = x.abs().amax(-1, keepdim=True)
        case "L1":
            size = x.abs().sum(-1, keepdim=True)
        case "L2":
            size = torch.sqrt((x * x).sum(-1, keepdim=True))
        case other:
            raise node.error(f"the norm {other!r} is unknown")
    return torch.where(size == 0, x, x / size).to(torch.float32)


@operator("Binarizer", domain=ML)
def binarizer(node: Node, x: Tensor) -> Tensor:
    return (x > node.get("threshold", 0.0)).to(x.dtype)


@operator("Imputer", domain=ML)
def imputer(node: Node, x: Tensor) -> Tensor:
    if x.is_floating_point():
        values, old = node.get("imputed_value_floats"), node.get("replaced_value_float", 0.0)
    else:
        values, old = node.get("imputed_value_int64s"), node.get("replaced_value_int64", 0)
    if not values:
        raise node.error(f"it has no values for {x.dtype}")
    missing = torch.isnan(x) if math.isnan(old) else x == old
    return torch.where(missing, torch.tensor(values, dtype=x.dtype), x)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    if x.dim() == 1:
        return x[indices.reshape(-1)].reshape(1, -1)
    return x[..., indices.reshape(-1)]


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node, *inputs: Tensor) -> Tensor:
    sizes = node.get("inputdimensions") or [None] * len(inputs)
    columns = []
    for x, size in zip(inputs, sizes, strict=True):
        x = x.reshape(1, -1) if x.dim() < 2 else x
        columns.append(x.to(torch.float32) if size is None else x[:, :size].to(torch.float32))
    return torch.cat(columns, 1)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node, x: Tensor) -> Tensor:
    classes = node.get("cats_int64s")
    if not classes:
        raise node.error("its categories are strings, which are not supported", hint="encode them before the model")
    if not node.get("zeros", 1):
        _LOGGER.warning("node %s: numbers that are no category become zeros; ONNX makes them an error", node.title)
    return (x.to(torch.int64).unsqueeze(-1) == torch.tensor(classes, dtype=torch.int64)).to(torch.float32)


@operator("LabelEncoder", domain=ML)
def label_encoder(node: Node, x: Tensor) -> Tensor:
    keys = _labels(node, "keys", x.dtype)
    values = _labels(node, "values", None)
    if keys.shape != values.shape:
        raise node.error(f"it has {keys.shape[0]} keys and {values.shape[0]} values")
    default = node.get("default_tensor")
    if default is not None:
        other = default.reshape([])
    elif values.is_floating_point():
        other = torch.tensor(node.get("default_float", 0.0), dtype=values.dtype)
    else:
        other = torch.tensor(node.get("default_int64", -1), dtype=values.dtype)
    if not keys.numel():
        return other.expand(x.shape)
    if keys.is_floating_point():
        # NaN is a key too.
        unknown = torch.isnan(keys)
        same = (x.unsqueeze(-1) == keys) | (torch.isnan(x).unsqueeze(-1) & unknown)
        found = same.any(-1)
        place = torch.argmax(same.to(torch.int8), -1)
    else:
        order = torch.argsort(keys, stable=True)
        keys, values = keys[order], values[order]
        place = torch.searchsorted(keys, x.contiguous()).clamp(max=keys.shape[0] - 1)
        found = keys[place] == x
    return torch.where(found, values[place], other)


def _labels(node: Node, side: str, dtype: torch.dtype | None) -> Tensor:
    tensor: Any = node.get(f"{side}_tensor")
    if isinstance(tensor, torch.Tensor):
        return tensor.reshape(-1) if dtype is None else tensor.reshape(-1).to(dtype)
    for name, own in ((f"{side}_int64s", torch.int64), (f"{side}_floats", torch.float32)):
        if node.get(name):
            return torch.tensor(node.get(name), dtype=dtype or own)
    raise node.error(f"its {side} are strings, which are not supported", hint="encode them before the model")


@operator("ZipMap", domain=ML)
def zip_map(node: Node, x: Tensor) -> Tensor:
    keys = node.get("classlabels_int64s") or node.get("classlabels_strings") or []
    _LOGGER.warning("node %s: returns the matrix of scores, its columns in the order of %s", node.title, keys[:10])
    return x


@operator("CategoryMapper", "CastMap", "DictVectorizer", domain=ML)
def of_strings(node: Node, *inputs: Any) -> Tensor:
    raise node.error("strings and dictionaries are not supported", hint="encode them before the model")
