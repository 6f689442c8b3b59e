"""`aotpack::cuda_gemm`: matrix products with a bias and an activation, by a kernel of this project."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_rule import Tile, choose
from aotpack.export.ops.cuda.gpu import limits
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

_GROUP_M = 8
_LARGEST_TILE = 256

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Those of `ops.ACTIVATIONS` that the kernel has.
ACTIVATIONS = frozenset(range(7))


@triton_op("aotpack::cuda_gemm", mutates_args={})
def cuda_gemm(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, activation: int) -> Tensor:
    """activation(alpha * (a @ b) + bias).

    Args:
        a: [..., m, k], of any strides.
        b: [k, n], or [..., k, n] with leading dims that broadcast with those of `a`; of any strides.
        bias: [n], contiguous.
        alpha: a factor of the product.
        activation: a number of `ops.ACTIVATIONS`.

    Returns:
        [..., m, n], contiguous, of the dtype of `a`. Sums are of single precision, of double precision for double.
    """
    return product(a, b, bias, alpha, activation, launch)


def product(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, activation: int, launcher: Launcher) -> Tensor:
    """`cuda_gemm`, with the function that launches kernels."""
    if b.dim() == 2:
        leading: Any = a.shape[:-1]
        x, y = a.reshape(1, math.prod(leading), a.shape[-1]), b.unsqueeze(0)
    else:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        leading = (*batch, a.shape[-2])
        count = math.prod(batch)
        x = a.expand(*batch, -1, -1).reshape(count, a.shape[-2], a.shape[-1])
        y = b.expand(*batch, -1, -1).reshape(count, b.shape[-2], b.shape[-1])
    # Made in its shape: TorchInductor cannot order a view of a tensor that a kernel writes to and whose size depends on
    # data.
    out = a.new_empty((*leading, b.shape[-1]))
    return launcher(_product(x, y, out, bias, alpha, activation))


def _product(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, alpha: float, activation: int) -> Launch:
    """`cuda_gemm` of [z, m, k] and [z, k, n]; `out` has as many elements as the product, in row-major order."""
    (z, m, k), n = a.shape, b.shape[2]
    tile = _tile(z, m, n, k, a.dtype)
    grid: Any = ((m + tile.m - 1) // tile.m * ((n + tile.n - 1) // tile.n), z)
    arguments = {
        "a": a,
        "b": b,
        # It is not read where there is none.
        "bias": a if bias is None else bias,
        "out": out,
        "M": m,
        "N": n,
        "K": k,
        **dict(zip(("stride_az", "stride_am", "stride_ak"), a.stride(), strict=True)),
        **dict(zip(("stride_bz", "stride_bk", "stride_bn"), b.stride(), strict=True)),
        "ALPHA": alpha,
        "HAS_BIAS": bias is not None,
        "ACTIVATION": activation,
        "DOUBLE": a.dtype == torch.float64,
        "EVEN_K": isinstance(k, int) and k % tile.k == 0,
        "SMALL": _is_small(a) and _is_small(b),
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP_M": _GROUP_M,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    return Launch(gemm_kernel, grid, arguments)


def _is_small(matrices: Tensor) -> bool:
    """Whether 32 bits hold the offsets in each of the matrices, and in a tile that begins at the last element."""
    sizes = (*matrices.shape[1:], *matrices.stride()[1:])
    if not all(isinstance(size, int) for size in sizes):
        return False
    (rows, columns), (row, column) = matrices.shape[1:], matrices.stride()[1:]
    return (rows + _LARGEST_TILE) * row + (columns + _LARGEST_TILE) * column < 1 << 31


def _tile(z: Any, m: Any, n: Any, k: Any, dtype: torch.dtype) -> Tile:
    multiprocessors, shared = limits()
    sizes = (size_hint(z), size_hint(m), size_hint(n), size_hint(k))
    return choose(*sizes, dtype, multiprocessors=multiprocessors, shared_bytes=shared)


OPERATOR: OpOverload = torch.ops.aotpack.cuda_gemm.default
