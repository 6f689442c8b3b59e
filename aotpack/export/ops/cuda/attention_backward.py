"""`aotpack::cuda_attention_backward`: gradients of attention without dropout, by kernels of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.attention import operands
from aotpack.export.ops.cuda.attention_backward_rule import choose_keys, choose_queries
from aotpack.export.ops.cuda.gpu import limits, uses_tf32
from aotpack.export.ops.cuda.key_gradients_kernel import key_gradients_kernel
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.ops.cuda.query_gradient_kernel import query_gradient_kernel
from aotpack.export.torch_compat.operators import OpOverload


@triton_op("aotpack::cuda_attention_backward", mutates_args={})
def cuda_attention_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    y: Tensor,
    statistics: Tensor,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values of `aotpack::cuda_attention_with_statistics`.

    Args:
        dy: the gradient of the result: [batch, heads, length, dim], of any strides.
        q, k, v, mask, is_causal, scale: the arguments of that call, with values of the size `dim`.
        y, statistics: its results.

    Returns:
        Gradients with the sizes and the dtype of q, k and v, which lie in memory as [batch, length, heads, dim]. Sums
        are of single precision and are the same in every call. Nothing has the size of the scores.
    """
    return attention_gradients(dy, q, k, v, mask, y, statistics, is_causal, scale, launch)


def attention_gradients(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    y: Tensor,
    statistics: Tensor,
    is_causal: bool,
    scale: float,
    launcher: Launcher,
) -> tuple[Tensor, Tensor, Tensor]:
    """`cuda_attention_backward`, with the function that launches kernels."""
    (batch, heads, length, dim), (_, key_heads, keys, _) = q.shape, k.shape
    shared = operands(q, k, v, mask, scale) | {
        "dy": dy,
        "statistics": statistics,
        **dict(zip(("stride_gb", "stride_gh", "stride_gm", "stride_gd"), dy.stride(), strict=True)),
        "CAUSAL": is_causal,
    }
    _, shared_bytes = limits()
    how: Any = {"shared_bytes": shared_bytes, "tf32": uses_tf32(q.dtype)}

    tile = choose_queries(shared["BLOCK_D"], q.dtype, **how)
    own = {
        "y": y,
        "out": q.new_empty((batch, length, heads, dim)),
        "delta": q.new_empty((batch, heads, length), dtype=torch.float32),
        "HEADS": heads,
        **dict(zip(("stride_yb", "stride_yh", "stride_ym", "stride_yd"), y.stride(), strict=True)),
        "BLOCK_M": tile.own,
        "BLOCK_N": tile.other,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    grid: Any = ((length + tile.own - 1) // tile.own * batch * heads,)
    dq = launcher(Launch(query_gradient_kernel, grid, shared | own))

    tile = choose_keys(shared["BLOCK_D"], q.dtype, **how)
    dv = k.new_empty((batch, keys, key_heads, dim))
    own = {
        "delta": own["delta"],
        "out": torch.empty_like(dv),
        "value_gradient": dv,
        "KEY_HEADS": key_heads,
        "BLOCK_M": tile.other,
        "BLOCK_N": tile.own,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    grid = ((keys + tile.own - 1) // tile.own * batch * key_heads,)
    dk = launcher(Launch(key_gradients_kernel, grid, shared | own))
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


OPERATOR: OpOverload = torch.ops.aotpack.cuda_attention_backward.default
