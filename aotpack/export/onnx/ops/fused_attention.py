"""Attention of `com.microsoft`."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import CONTRIB, operator
from aotpack.export.onnx.base.values import Known
from aotpack.export.onnx.ops.attention import by_heads
from aotpack.export.onnx.ops.quantization import integer_product

Tensor = torch.Tensor
functional = torch.nn.functional


def _merged(y: Tensor) -> Tensor:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3])


def _of_keys(node: Node, mask: Tensor, batch: Any, keys: Any) -> Tensor:
    """Where keys may be read: bool, of a shape that broadcasts with [batch, heads, queries, keys]."""
    place = torch.arange(keys)
    if mask.dim() == 1:
        if isinstance(batch, int) and isinstance(mask.shape[0], int) and mask.shape[0] == 2 * batch and batch > 0:
            ends, starts = mask[:batch, None], mask[batch:, None]
            return ((place < ends) & (place >= starts))[:, None, None, :]
        return (place < mask[:, None])[:, None, None, :]
    if mask.dim() == 2:
        return (mask != 0)[:, None, None, :]
    if mask.dim() == 3:
        return (mask != 0)[:, None]
    raise node.error(f"a mask of {mask.dim()} dims is not supported")


def _causal(queries: Any, keys: Any) -> Tensor:
    """Queries are the last of the keys."""
    return torch.arange(keys) <= torch.arange(queries)[:, None] + (keys - queries)


def _attended(node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Attention of [batch, heads, length, size] with a mask of keys and a bias of scores."""
    scale = node.get("scale") or 1 / math.sqrt(q.shape[-1])
    unidirectional = bool(node.get("unidirectional", 0))
    if mask is not None:
        filtered = torch.where(_of_keys(node, mask, q.shape[0], k.shape[2]), 0.0, node.get("mask_filter_value", -1e4))
        bias = filtered.to(q.dtype) if bias is None else bias + filtered.to(q.dtype)
    if unidirectional:
        below = torch.where(_causal(q.shape[2], k.shape[2]), 0.0, torch.finfo(q.dtype).min).to(q.dtype)
        bias = below if bias is None else torch.where(below < 0, below, bias)
    return _merged(functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale))


def _with_past(node: Node, k: Tensor, v: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values after those of `past` [2, batch, heads, length, size], and both together."""
    if node.get("past_present_share_buffer", 0):
        raise node.error("a buffer that past and present share is not supported")
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    if not node.wants(1):
        return k, v, k
    return k, v, torch.stack([k, v])


@operator("Attention", domain=CONTRIB)
def attention(
    node: Node,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    scores: Tensor | None = None,
    length: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    projected = x @ weight
    return _self_attention(node, projected if bias is None else projected + bias, mask, past, scores)


def _self_attention(
    node: Node, projected: Tensor, mask: Tensor | None, past: Tensor | None, scores: Tensor | None
) -> tuple[Tensor, Tensor]:
    if node.get("do_rotary", 0):
        raise node.error("rotary embeddings inside of Attention are not supported")
    heads = node.require("num_heads")
    sizes = node.get("qkv_hidden_sizes") or [projected.shape[-1] // 3] * 3
    q, k, v = (by_heads(part, heads) for part in projected.split(sizes, -1))
    k, v, present = _with_past(node, k, v, past)
    return _attended(node, q, k, v, mask, scores), present


@operator("QAttention", domain=CONTRIB)
def q_attention(
    node: Node,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    zeros = [None if z is None else z.to(torch.int32) for z in (x_zero, weight_zero)]
    product = integer_product(x, weight, zeros[0], zeros[1])
    return _self_attention(node, product.to(x_scale.dtype) * (x_scale * weight_scale) + bias, mask, past, None)


@operator("MultiHeadAttention", domain=CONTRIB)
def multi_head_attention(
    node: Node,
    q: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    scores: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *rest: Tensor | None,
) -> tuple[Tensor, ...]:
    heads = node.require("num_heads")
    if node.wants(3) or any(value is not None for value in rest):
        raise node.error("scores as an output, and caches of beams are not supported")
    if q.dim() == 5:
        # [batch, length, heads, 3, size]
        q, k, v = (part.flatten(2) for part in q.unbind(3))
    elif k is not None and k.dim() == 5:
        k, v = (part.flatten(2) for part in k.unbind(3))
    if k is None or v is None:
        raise node.error("it has neither keys and values nor what is packed")
    if bias is not None:
        own = q.shape[-1]
        q = q + bias[:own]
        if k.dim() == 3:
            k, v = k + bias[own : 2 * own], v + bias[2 * own :]
    q = by_heads(q, heads)
    k, v = (part if part.dim() == 4 else by_heads(part, heads) for part in (k, v))
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    return _attended(node, q, k, v, mask, scores), k, v


# ---- rotary embeddings and groups of queries ------------------------------------------------------------------------


def rotated(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotates pairs of the first `2 * cos.shape[-1]` elements of heads.

    Args:
        x: [batch, heads, length, size].
        cos, sin: [batch, length, pairs], or without batch.
        interleaved: whether pairs are neighbours, or an element of each half.
    """
    cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
    turned, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    if interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, -1)
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    both = torch.stack([real, imaginary], -1).flatten(-2) if interleaved else torch.cat([real, imaginary], -1)
    return torch.cat([both, rest], -1)


@operator("RotaryEmbedding", domain=CONTRIB)
def rotary_embedding(node: Node, x: Tensor, places: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    if x.dim() == 4:
        heads = x
    else:
        count = node.get("num_heads", 0)
        size = x.shape[2] // count if count else 2 * cos.shape[1]
        heads = by_heads(x, x.shape[2] // size)
    if places.dim() == 1:
        at = places.reshape(1) + torch.arange(heads.shape[2])
        at = at.unsqueeze(0)
    else:
        at = places
    y = rotated(heads, cos[at], sin[at], interleaved=bool(node.get("interleaved", 0)))
    return y if x.dim() == 4 else _merged(y)


@operator("GroupQueryAttention", domain=CONTRIB, known=(6,))
def group_query_attention(
    node: Node,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    last: Tensor,
    total: Any,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    places: Tensor | None = None,
    scores: Tensor | None = None,
    *rest: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    if any(value is not None for value in rest) or node.get("smooth_softmax", 0) == 1:
        raise node.error("sinks of softmax and quantized caches are not supported")
    heads, kv_heads = node.require("num_heads"), node.require("kv_num_heads")
    if k is None or v is None:
        size = q.shape[2] // (heads + 2 * kv_heads)
        q, k, v = q.split([heads * size, kv_heads * size, kv_heads * size], 2)
    q, k, v = by_heads(q, heads), by_heads(k, kv_heads), by_heads(v, kv_heads)
    length = q.shape[2]
    # Where the queries are among the keys: [batch, length]. Shorter rows of a first prompt begin at 0 too.
    at = (last.reshape(-1).to(torch.int64) + 1 - length).clamp(min=0)[:, None] + torch.arange(length)
    if node.get("do_rotary", 0):
        if cos is None or sin is None:
            raise node.error("it has no cosines and sines to rotate by")
        turns = at if places is None else places
        interleaved = bool(node.get("rotary_interleaved", 0))
        # Rows of padding are beyond the table.
        turns = turns.clamp(max=cos.shape[0] - 1)
        q, k = (rotated(x, cos[turns], sin[turns], interleaved=interleaved) for x in (q, k))
    k, v = _cached(past_key, k, at, total), _cached(past_value, v, at, total)
    column = torch.arange(k.shape[2])
    allowed = column <= at[:, :, None]
    window = node.get("local_window_size", -1)
    if window > 0:
        allowed = allowed & (column > at[:, :, None] - window)
    keys, values = k, v
    if heads != kv_heads:
        keys, values = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    scale, cap = node.get("scale") or 1 / math.sqrt(q.shape[-1]), node.get("softcap", 0.0)
    if cap:
        raw = torch.tanh((q * scale) @ keys.transpose(-1, -2) / cap) * cap
        raw = raw if scores is None else raw + scores
        y = torch.softmax(torch.where(allowed[:, None], raw, -math.inf), -1).to(q.dtype) @ values
        return _merged(y), k, v
    bias = torch.where(allowed[:, None], 0.0, -math.inf).to(q.dtype)
    bias = bias if scores is None else bias + scores
    y = functional.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=scale)
    return _merged(y), k, v


def _cached(past: Tensor | None, new: Tensor, at: Tensor, total: Any) -> Tensor:
    """`past` with `new` [batch, heads, length, size] at the places `at` of each row."""
    if past is None:
        return new
    length = past.shape[2] + new.shape[2]
    if isinstance(total, Known):
        length = torch.sym_max(past.shape[2], total.values.item())
    room = torch.zeros([past.shape[0], past.shape[1], length - past.shape[2], past.shape[3]], dtype=past.dtype)
    places = at[:, None, :, None].expand(new.shape)
    return torch.cat([past, room], 2).scatter(2, places, new)
