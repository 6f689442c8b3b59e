"""`aotpack::cuda_int8_weight_linear`: linear layers that read int8 weights, by kernels of this project."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.gemm_rule import Tile, choose_vector
from aotpack.export.ops.cuda.gpu import input_precision
from aotpack.export.ops.cuda.int8_weight_kernel import int8_weight_gemm_kernel, int8_weight_gemv_kernel
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.ops.cuda.tiles import undivided_tile
from aotpack.export.symbolic_shapes.hints import size_hint, size_limit
from aotpack.export.torch_compat.operators import OpOverload

_GROUP_M = 8

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Those of `ops.ACTIVATIONS` that the kernels have.
ACTIVATIONS = frozenset(range(7))


@triton_op("aotpack::cuda_int8_weight_linear", mutates_args={})
def cuda_int8_weight_linear(
    x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: int
) -> Tensor:
    """activation(scale * (x @ weight.T) + bias).

    Args:
        x: [..., k], of any strides, of one of `DTYPES`.
        weight: int8[n, k], of any strides.
        scale: [n], of any stride and any floating dtype.
        bias: [n], contiguous.
        activation: a number of `ops.ACTIVATIONS`.

    Returns:
        [..., n], contiguous, of the dtype of `x`. Sums are of single precision, and scaled before they are rounded.
    """
    return linear(x, weight, scale, bias, activation, launch)


def linear(
    x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: int, launcher: Launcher
) -> Tensor:
    """`cuda_int8_weight_linear`, with the function that launches kernels."""
    (n, k), leading = weight.shape, x.shape[:-1]
    rows = x.reshape(math.prod(leading), k)
    m = rows.shape[0]
    vector = _vector_tile(rows, weight)
    tile = undivided_tile(1, size_hint(m), size_hint(n), size_hint(k), x.dtype) if vector is None else vector
    tiles: Any = (m + tile.m - 1) // tile.m * ((n + tile.n - 1) // tile.n)
    arguments = {
        "x": rows,
        "w": weight,
        # They are not read where there are none.
        "scale": rows if scale is None else scale,
        "bias": rows if bias is None else bias,
        "out": x.new_empty((*leading, n)),
        "M": m,
        "N": n,
        "K": k,
        **dict(zip(("stride_xm", "stride_xk"), rows.stride(), strict=True)),
        **dict(zip(("stride_wn", "stride_wk"), weight.stride(), strict=True)),
        "stride_s": 0 if scale is None else scale.stride(0),
        "HAS_SCALE": scale is not None,
        "HAS_BIAS": bias is not None,
        "ACTIVATION": activation,
        "EVEN_K": isinstance(k, int) and k % tile.k == 0,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    if vector is not None:
        return launcher(Launch(int8_weight_gemv_kernel, (tiles,), arguments))
    own = {"GROUP_M": _GROUP_M, "PRECISION": input_precision(x.dtype)}
    return launcher(Launch(int8_weight_gemm_kernel, (tiles,), arguments | own))


def _vector_tile(rows: Tensor, weight: Tensor) -> Tile | None:
    """Where the kernel for few rows is the faster one."""
    step = weight.stride(1)
    if not isinstance(step, int) or step != 1:
        return None
    (m, k), n = rows.shape, weight.shape[0]
    return choose_vector(size_hint(m), size_hint(n), size_hint(k), rows.dtype, most_rows=size_limit(m))


OPERATOR: OpOverload = torch.ops.aotpack.cuda_int8_weight_linear.default
