"""`aotpack::cuda_attention`: attention without dropout, by kernels of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.attention_kernel import attention_kernel
from aotpack.export.ops.cuda.attention_rule import AttentionTile, choose, choose_decode
from aotpack.export.ops.cuda.block_sizes import power_of_two, product_block
from aotpack.export.ops.cuda.decode_kernel import combine_kernel, decode_kernel
from aotpack.export.ops.cuda.gpu import input_precision, limits, uses_tf32
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint, size_limit
from aotpack.export.torch_compat.operators import OpOverload

# Not double: Triton has no products of that precision for operands of more than 16 columns.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Sizes of heads; a block has one in its registers.
LARGEST_DIM = 256
# Positions up to which an attention may be one that generates text.
_FEW_POSITIONS = 16
# Keys of a cache whose size has no limit.
_LONG_CACHE = 4096


@triton_op("aotpack::cuda_attention", mutates_args={})
def cuda_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """softmax(scale * q @ k.T + mask) @ v.

    Args:
        q: [batch, heads, length, dim], of any strides.
        k: [batch, key heads, keys, dim]; `heads` is a multiple of the number of key heads.
        v: [batch, key heads, keys, value dim].
        mask: broadcasts to [batch, heads, length, keys]: booleans, false where a key is not read, or what is added.
        is_causal: whether position i reads keys up to i only.
        scale: a factor of the scores.

    Returns:
        [batch, heads, length, value dim], which lies in memory as [batch, length, heads, value dim]. Rows without keys
        are 0. Sums are of single precision.
    """
    return attend(q, k, v, mask, is_causal, scale, launch)


@triton_op("aotpack::cuda_attention_with_statistics", mutates_args={})
def cuda_attention_with_statistics(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What `cuda_attention` returns, and what `cuda_attention_backward` needs to compute the weights again.

    Returns:
        The second result is [batch, heads, 2, length] of single precision: of each row the largest score and the binary
        logarithm of the sum of exp(score - largest); 0 and infinity where it has no keys.
    """
    return attend_with_statistics(q, k, v, mask, is_causal, scale, launch)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float, launcher: Launcher
) -> Tensor:
    """`cuda_attention`, with the function that launches kernels."""
    shared = _arguments(q, k, v, mask, scale)
    # With `is_causal`, few positions read few keys.
    if not is_causal and size_hint(q.shape[2]) <= _FEW_POSITIONS:
        out = _decode(q, v, shared, launcher)
        if out is not None:
            return out.transpose(1, 2)
    return _attend(q, v, shared, is_causal, None, launcher)


def attend_with_statistics(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float, launcher: Launcher
) -> tuple[Tensor, Tensor]:
    """`cuda_attention_with_statistics`, with the function that launches kernels."""
    batch, heads, length, _ = q.shape
    statistics = q.new_empty((batch, heads, 2, length), dtype=torch.float32)
    return _attend(q, v, _arguments(q, k, v, mask, scale), is_causal, statistics, launcher), statistics


def _attend(
    q: Tensor, v: Tensor, shared: dict[str, Any], is_causal: bool, statistics: Tensor | None, launcher: Launcher
) -> Tensor:
    (batch, heads, length, _), keys = q.shape, v.shape[2]
    multiprocessors, shared_bytes = limits()
    tile = choose(
        size_hint(batch) * size_hint(heads),
        size_hint(length),
        size_hint(keys),
        shared["BLOCK_D"],
        shared["BLOCK_VD"],
        q.dtype,
        multiprocessors=multiprocessors,
        shared_bytes=shared_bytes,
        tf32=uses_tf32(q.dtype),
    )
    grid: Any = ((length + tile.m - 1) // tile.m * batch * heads,)
    own = {
        "out": q.new_empty((batch, length, heads, v.shape[3])),
        # Not written to where there are none.
        "statistics": q if statistics is None else statistics,
        "STATISTICS": statistics is not None,
        "HEADS": heads,
        "CAUSAL": is_causal,
    }
    return launcher(Launch(attention_kernel, grid, shared | own | _sizes(tile))).transpose(1, 2)


def _decode(q: Tensor, v: Tensor, shared: dict[str, Any], launcher: Launcher) -> Tensor | None:
    """Attention with few positions: [batch, length, heads, value dim]; None where `attention_kernel` is as good."""
    (batch, heads, length, _), (_, key_heads, keys, value_dim) = q.shape, v.shape
    group = heads // key_heads
    multiprocessors, shared_bytes = limits()
    rows: Any = batch * length * heads
    step = shared["stride_mh"]
    # One mask for all heads of a group.
    skip = shared["MASK"] != 0 and (group == 1 or (isinstance(step, int) and step == 0))
    chosen = choose_decode(
        size_hint(batch) * size_hint(key_heads),
        size_hint(length) * group,
        _longest(keys),
        shared["BLOCK_D"],
        shared["BLOCK_VD"],
        q.dtype,
        reads_less=group > 1 or skip,
        most_results=size_limit(rows * value_dim),
        multiprocessors=multiprocessors,
        shared_bytes=shared_bytes,
    )
    if chosen is None:
        return None
    tile, splits = chosen
    out = q.new_empty((batch, length, heads, value_dim))
    parts = out if splits == 1 else q.new_empty((splits * rows * (value_dim + 2),), dtype=torch.float32)
    own = {
        "out": parts,
        "ROWS": rows,
        "KEY_HEADS": key_heads,
        "SKIP": skip,
        "SPLITS": splits,
    }
    grid: Any = ((length * group + tile.m - 1) // tile.m * batch * key_heads, splits)
    parts = launcher(Launch(decode_kernel, grid, shared | own | _sizes(tile)))
    if splits == 1:
        return parts
    arguments = {
        "parts": parts,
        "out": out,
        "ROWS": rows,
        "VALUE_DIM": value_dim,
        "SPLITS": splits,
        "BLOCK_S": power_of_two(splits),
        "BLOCK_VD": shared["BLOCK_VD"],
        "num_warps": 4,
    }
    return launcher(Launch(combine_kernel, (rows,), arguments))


def _arguments(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> dict[str, Any]:
    """What the kernels of the forward are called with."""
    value_dim = v.shape[3]
    return operands(q, k, v, mask, scale) | {"VALUE_DIM": value_dim, "BLOCK_VD": product_block(value_dim)}


def operands(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> dict[str, Any]:
    """What all kernels of attention are called with, those of its gradients too."""
    (batch, heads, length, dim), (_, key_heads, keys, _) = q.shape, v.shape
    # It is not read where there is none.
    over = q if mask is None else mask.expand(batch, heads, length, keys)
    return {
        "q": q,
        "k": k,
        "v": v,
        "mask": over,
        "LENGTH": length,
        "KEYS": keys,
        **dict(zip(("stride_qb", "stride_qh", "stride_qm", "stride_qd"), q.stride(), strict=True)),
        **dict(zip(("stride_kb", "stride_kh", "stride_kn", "stride_kd"), k.stride(), strict=True)),
        **dict(zip(("stride_vb", "stride_vh", "stride_vn", "stride_vd"), v.stride(), strict=True)),
        **dict(zip(("stride_mb", "stride_mh", "stride_mm", "stride_mn"), over.stride(), strict=True)),
        "SCALE": scale,
        "GROUP": heads // key_heads,
        "DIM": dim,
        "MASK": 0 if mask is None else 1 if mask.dtype == torch.bool else 2,
        "BLOCK_D": product_block(dim),
        "PRECISION": input_precision(q.dtype),
    }


def _sizes(tile: AttentionTile) -> dict[str, int]:
    return {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "num_warps": tile.warps, "num_stages": tile.stages}


def _longest(keys: Any) -> int:
    """How many keys to expect: caches that grow are read for the longest time when they are long."""
    if isinstance(keys, int):
        return keys
    limit = size_limit(keys)
    return max(size_hint(keys), _LONG_CACHE if limit is None else min(limit, _LONG_CACHE))


OPERATOR: OpOverload = torch.ops.aotpack.cuda_attention.default
WITH_STATISTICS: OpOverload = torch.ops.aotpack.cuda_attention_with_statistics.default
