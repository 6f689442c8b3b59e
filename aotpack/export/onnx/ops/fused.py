"""Fused operators of `com.microsoft` that are not attention: activations, products, normalizations."""

from __future__ import annotations

from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import CONTRIB, operator
from aotpack.export.onnx.ops.activations import ACTIVATIONS
from aotpack.export.onnx.ops.products import conv, gemm

Tensor = torch.Tensor
functional = torch.nn.functional


# ---- activations ----------------------------------------------------------------------------------------------------


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


@operator("Gelu", "BiasGelu", domain=CONTRIB)
def gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.gelu(_biased(x, bias))


@operator("FastGelu", domain=CONTRIB)
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.gelu(_biased(x, bias), approximate="tanh")


@operator("QuickGelu", domain=CONTRIB)
def quick_gelu(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node.get("alpha", 1.702) * x)


def _activated(node: Node, x: Tensor, *numbers: float | None) -> Tensor:
    """The activation that a fused operator names, with the numbers that the node has for it."""
    name = node.get("activation", "")
    if not name:
        return x
    found = ACTIVATIONS.get(name.lower())
    if found is None:
        raise node.error(f"the activation {name!r} is not supported")
    given = zip(numbers, found.defaults, strict=False)
    return found.function(x, *(default if number is None else number for number, default in given))


# ---- products -------------------------------------------------------------------------------------------------------


@operator("FusedMatMul", "TransposeMatMul", domain=CONTRIB)
def fused_mat_mul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    a = _transposed(a, node.get("transA", 0), node.get("transBatchA", 0))
    b = _transposed(b, node.get("transB", 0), node.get("transBatchB", 0))
    alpha = node.get("alpha", 1.0)
    product = torch.matmul(a, b)
    return product if alpha == 1 else product * alpha


def _transposed(x: Tensor, matrix: int, batch: int) -> Tensor:
    if batch and x.dim() > 2:
        # [m, batch…, k] as [batch…, m, k].
        x = x.movedim(0, -2)
    return x.transpose(-1, -2) if matrix and x.dim() > 1 else x


@operator("FusedGemm", domain=CONTRIB)
def fused_gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    names = ("activation_alpha", "activation_beta")
    return _activated(node, gemm(node, a, b, c), *(node.get(n) for n in names))


@operator("FusedConv", domain=CONTRIB)
def fused_conv(node: Node, x: Tensor, w: Tensor, bias: Tensor | None = None, added: Tensor | None = None) -> Tensor:
    y = conv(node, x, w, bias)
    y = y if added is None else y + added
    first, second = [*(node.get("activation_params") or []), None, None][:2]
    return _activated(node, y, first, second)


@operator("NhwcConv", domain=CONTRIB)
def nhwc_conv(node: Node, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return conv(node, x.movedim(-1, 1), w.movedim(-1, 1), bias).movedim(1, -1)


@operator("MatMulNBits", domain=CONTRIB)
def mat_mul_n_bits(
    node: Node,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    groups: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    bits, block = node.get("bits", 4), node.require("block_size")
    depth, columns = node.require("K"), node.require("N")
    if bits not in (2, 4, 8):
        raise node.error(f"weights of {bits} bits are not supported")
    blocks = (depth + block - 1) // block
    numbers = _unpacked(b.reshape(columns, -1), bits)[:, : blocks * block].reshape(columns, blocks, block)
    factors = scales.reshape(columns, blocks).to(a.dtype)
    if zeros is None:
        middle: Any = 1 << (bits - 1)
    elif zeros.dtype == torch.uint8:
        middle = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks].to(a.dtype)
    else:
        middle = zeros.reshape(columns, blocks).to(a.dtype)
    if groups is None:
        middle = middle.unsqueeze(-1) if isinstance(middle, Tensor) else middle
        weight = ((numbers.to(a.dtype) - middle) * factors.unsqueeze(-1)).reshape(columns, -1)[:, :depth]
    else:
        at = groups.to(torch.int64)[:depth]
        middle = middle[:, at] if isinstance(middle, Tensor) else middle
        weight = (numbers.reshape(columns, -1)[:, :depth].to(a.dtype) - middle) * factors[:, at]
    return functional.linear(a, weight, bias)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """uint8[rows, bytes] as uint8[rows, numbers], the lowest bits of a byte first."""
    if bits == 8:
        return x
    parts = [(x >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).reshape(x.shape[0], -1)


# ---- normalization --------------------------------------------------------------------------------------------------


def _simplified(x: Tensor, scale: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    exact = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    inverse = torch.rsqrt((exact * exact).mean(-1, keepdim=True) + epsilon)
    return (exact * inverse * scale.to(exact.dtype)).to(x.dtype), inverse


@operator("SimplifiedLayerNormalization", domain=CONTRIB)
def simplified_layer_normalization(node: Node, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    if node.get("axis", -1) not in (-1, x.dim() - 1):
        raise node.error("it is supported over the last axis alone")
    return _simplified(x, scale, node.get("epsilon", 1e-5))


@operator("SkipLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, shift: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    total = _biased(x + skip, bias)
    y = functional.layer_norm(total, [total.shape[-1]], scale, shift, node.get("epsilon", 1e-12))
    if not (node.wants(1) or node.wants(2)):
        return y, total, total, total
    mean = total.mean(-1, keepdim=True)
    inverse = torch.rsqrt((total - mean).square().mean(-1, keepdim=True) + node.get("epsilon", 1e-12))
    return y, mean, inverse, total


@operator("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_simplified_layer_normalization(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    total = _biased(x + skip, bias)
    y, inverse = _simplified(total, scale, node.get("epsilon", 1e-12))
    return y, total, inverse, total


@operator("EmbedLayerNormalization", domain=CONTRIB)
def embed_layer_normalization(
    node: Node,
    words: Tensor,
    segments: Tensor | None,
    of_words: Tensor,
    of_places: Tensor,
    of_segments: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None = None,
    places: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    total = functional.embedding(words, of_words)
    total = total + (of_places[: words.shape[1]] if places is None else functional.embedding(places, of_places))
    if segments is not None and of_segments is not None:
        total = total + functional.embedding(segments, of_segments)
    y = functional.layer_norm(total, [total.shape[-1]], scale, shift, node.get("epsilon", 1e-12))
    if mask is None or not node.get("mask_index_type", 1):
        count = torch.zeros([words.shape[0]], dtype=torch.int32)
    else:
        count = (mask == 1).sum(1, dtype=torch.int32)
    return y, count, total
