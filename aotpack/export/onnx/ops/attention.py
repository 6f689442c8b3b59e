"""Attention, linear attention and the causal convolution beside it."""

from __future__ import annotations

import math
from typing import Any

import torch

from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.graph import Node
from aotpack.export.onnx.base.table import operator
from aotpack.export.torch_compat.higher_order import scan_of

Tensor = torch.Tensor
functional = torch.nn.functional


def by_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def _bias(
    node: Node, q: Tensor, k: Tensor, mask: Tensor | None, past: Tensor | None, lengths: Tensor | None
) -> Tensor | None:
    """What is added to scores: 0 or a bias where a query reads a key, -inf elsewhere; None where there is nothing."""
    queries, keys = q.shape[2], k.shape[2]
    allowed: Tensor | None = None
    rows = torch.arange(queries)[:, None]
    columns = torch.arange(keys)[None, :]
    if lengths is not None and past is None:
        offset: Any = lengths.reshape(-1, 1, 1, 1) - queries
    else:
        offset = 0 if past is None else past.shape[2]

    def both(old: Tensor | None, new: Tensor) -> Tensor:
        return new if old is None else old & new

    if node.get("is_causal", 0):
        allowed = both(allowed, columns <= rows + offset)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    if left >= 0:
        allowed = both(allowed, rows + offset - columns <= left)
    if right >= 0:
        allowed = both(allowed, columns - rows - offset <= right)
    if lengths is not None:
        allowed = both(allowed, columns < lengths.reshape(-1, 1, 1, 1))
    if mask is not None:
        missing = keys - mask.shape[-1]
        if mask.dtype == torch.bool:
            mask = functional.pad(mask, [0, missing], value=False) if not _is_zero(missing) else mask
            allowed = both(allowed, mask)
            mask = None
        elif not _is_zero(missing):
            mask = functional.pad(mask, [0, missing], value=-math.inf)
    if allowed is None:
        return mask
    bias = torch.where(allowed, 0.0, -math.inf).to(q.dtype)
    return bias if mask is None else bias + mask


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


@operator("Attention", since=23)
def attention(
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, ...]:
    flat = q.dim() == 3
    if flat:
        q = by_heads(q, node.require("q_num_heads"))
        k, v = by_heads(k, node.require("kv_num_heads")), by_heads(v, node.require("kv_num_heads"))
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present_key, present_value = k, v
    groups = q.shape[1] // k.shape[1]
    bias = _bias(node, q, k, mask, past_key, lengths)
    scale = node.get("scale") or 1 / math.sqrt(q.shape[3])
    plain = not node.get("softcap", 0.0) and not node.wants(3) and not node.get("softmax_precision")
    masked = bias is not None
    if plain and not masked:
        y = functional.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=groups > 1)
        return _merged(y, flat), present_key, present_value
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    half = math.sqrt(scale)
    scores = (q * half) @ (k * half).transpose(-1, -2)
    steps = [scores]
    if node.get("softcap", 0.0):
        cap = node.get("softcap")
        scores = torch.tanh(scores / cap) * cap
    capped = scores
    if bias is not None:
        scores = scores + bias
    # Opset 24 has the bias before the cap's successor; modes number what is returned.
    steps = [steps[0], capped, scores] if node.version >= 24 else [steps[0], scores, capped]
    precision = node.get("softmax_precision")
    exact = scores.to(dtypes.torch_dtype(precision)) if precision else scores
    weights = _softmax(exact).to(scores.dtype)
    y = _merged(weights @ v, flat)
    mode = node.get("qk_matmul_output_mode", 0)
    shown = weights if mode == 3 else {0: steps[0], 1: capped, 2: scores}[mode]
    return y, present_key, present_value, shown


def _softmax(scores: Tensor) -> Tensor:
    """Softmax, of rows without any key 0."""
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    return torch.where(nothing, torch.zeros_like(scores), torch.softmax(scores, -1))


def _merged(y: Tensor, flat: bool) -> Tensor:
    if not flat:
        return y
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3])


@operator("LinearAttention")
def linear_attention(
    node: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    heads, kv_heads = node.require("q_num_heads"), node.require("kv_num_heads")
    rule, dtype = node.get("update_rule", "gated_delta"), q.dtype
    gated, corrected = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    if (gated and decay is None) or (corrected and beta is None):
        raise node.error(f"the rule {rule!r} needs an input that is missing")
    q, k, v = (by_heads(x, n).float() for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    size = q.shape[-1]
    scale = node.get("scale") or 1 / math.sqrt(size)
    # [time, batch, heads, …]: one step after the other.
    xs = [x.permute(2, 0, 1, 3).contiguous() for x in (q, k, v)]
    if gated and decay is not None:
        xs.append(by_heads(decay, kv_heads).float().permute(2, 0, 1, 3).contiguous())
    if corrected and beta is not None:
        xs.append(beta.float().transpose(0, 1).unsqueeze(-1).contiguous())
    if past is None:
        state = torch.zeros([q.shape[0], kv_heads, size, v.shape[-1]], dtype=torch.float32)
    else:
        state = past.float().clone()

    def step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> list[Tensor]:
        if gated:
            state = state * torch.exp(rest[0]).unsqueeze(-1)
        if corrected:
            v = rest[-1] * (v - (state * k.unsqueeze(-1)).sum(-2))
        state = state + k.unsqueeze(-1) * v.unsqueeze(-2)
        read = state.repeat_interleave(heads // kv_heads, 1)
        return [state.clone(), scale * (q.unsqueeze(-1) * read).sum(-2)]

    final, y = scan_of(step, [state], xs, [])
    y = y.permute(1, 0, 2, 3).reshape(y.shape[1], y.shape[0], -1)
    return y.to(dtype), final.to(dtype if past is None else past.dtype)


@operator("CausalConvWithState")
def causal_conv_with_state(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    reach = weight.shape[2] - 1
    if past is None:
        past = torch.zeros([x.shape[0], x.shape[1], reach], dtype=x.dtype)
    joined = torch.cat([past, x], 2)
    y = functional.conv1d(joined, weight, bias, groups=x.shape[1])
    if node.get("activation", "none") in ("silu", "swish"):
        y = functional.silu(y)
    return y, joined.narrow(2, joined.shape[2] - reach, reach)
