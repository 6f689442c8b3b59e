"""`aotpack::cuda_attention`: attention without dropout, by a kernel of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.attention_kernel import attention_kernel
from aotpack.export.ops.cuda.attention_rule import choose
from aotpack.export.ops.cuda.gpu import limits
from aotpack.export.ops.cuda.launch import Launch, launch
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

# Not double: Triton has no products of that precision for operands of more than 16 columns.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Sizes of heads; a block has one in its registers.
LARGEST_DIM = 256


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
    (batch, heads, length, dim), (_, key_heads, keys, value_dim) = q.shape, v.shape
    block_d, block_vd = (max(16, 1 << (size - 1).bit_length()) for size in (dim, value_dim))
    multiprocessors, shared = limits()
    tile = choose(
        size_hint(batch) * size_hint(heads),
        size_hint(length),
        size_hint(keys),
        block_d,
        block_vd,
        q.dtype,
        multiprocessors=multiprocessors,
        shared_bytes=shared,
    )
    out = q.new_empty((batch, length, heads, value_dim))
    # It is not read where there is none.
    over = q if mask is None else mask.expand(batch, heads, length, keys)
    kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
    grid: Any = ((length + tile.m - 1) // tile.m * batch * heads,)
    arguments = {
        "q": q,
        "k": k,
        "v": v,
        "mask": over,
        "out": out,
        "LENGTH": length,
        "KEYS": keys,
        "HEADS": heads,
        **dict(zip(("stride_qb", "stride_qh", "stride_qm", "stride_qd"), q.stride(), strict=True)),
        **dict(zip(("stride_kb", "stride_kh", "stride_kn", "stride_kd"), k.stride(), strict=True)),
        **dict(zip(("stride_vb", "stride_vh", "stride_vn", "stride_vd"), v.stride(), strict=True)),
        **dict(zip(("stride_mb", "stride_mh", "stride_mm", "stride_mn"), over.stride(), strict=True)),
        "SCALE": scale,
        "GROUP": heads // key_heads,
        "DIM": dim,
        "VALUE_DIM": value_dim,
        "MASK": kind,
        "CAUSAL": is_causal,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_D": block_d,
        "BLOCK_VD": block_vd,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    return launch(Launch(attention_kernel, grid, arguments)).transpose(1, 2)


OPERATOR: OpOverload = torch.ops.aotpack.cuda_attention.default
