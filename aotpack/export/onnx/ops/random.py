"""Random numbers. They come from the generator of the call, not from the seed of a node, which ONNX leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx import TensorProto

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator

Tensor = torch.Tensor


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _normal(node: Node, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    numbers = torch.randn(shape, dtype=_exact(dtype))
    return (numbers * node.get("scale", 1.0) + node.get("mean", 0.0)).to(dtype)


def _uniform(node: Node, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    low, high = node.get("low", 0.0), node.get("high", 1.0)
    return (torch.rand(shape, dtype=_exact(dtype)) * (high - low) + low).to(dtype)


def _both(name: str, function: Callable[[Node, Sequence[Any], torch.dtype], Tensor]) -> None:
    @operator(name)
    def compute(node: Node) -> Tensor:
        return function(node, node.require("shape"), dtypes.torch_dtype(node.get("dtype", TensorProto.FLOAT)))

    @operator(name + "Like")
    def compute_like(node: Node, x: Tensor) -> Tensor:
        code = node.get("dtype")
        return function(node, x.shape, x.dtype if code is None else dtypes.torch_dtype(code))


_both("RandomNormal", _normal)
_both("RandomUniform", _uniform)


@operator("Bernoulli", since=15)
def bernoulli(node: Node, x: Tensor) -> Tensor:
    code = node.get("dtype")
    chance = x.to(_exact(x.dtype))
    return (torch.rand(x.shape, dtype=chance.dtype) < chance).to(x.dtype if code is None else dtypes.torch_dtype(code))


@operator("Multinomial", since=7)
def multinomial(node: Node, x: Tensor) -> Tensor:
    """By the Gumbel trick: the largest of the log-probabilities and noise."""
    count = node.get("sample_size", 1)
    logits = x.to(_exact(x.dtype)).unsqueeze(1)
    uniform = torch.rand([x.shape[0], count, x.shape[1]], dtype=logits.dtype).clamp(1e-30, 1)
    noise = -torch.log((-torch.log(uniform)).clamp(min=1e-30))
    return torch.argmax(logits + noise, 2).to(dtypes.torch_dtype(node.get("dtype", TensorProto.INT32)))
