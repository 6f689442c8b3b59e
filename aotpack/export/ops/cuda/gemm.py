"""`aotpack::cuda_gemm`: matrix products with a bias and an activation, by a kernel of this project."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_rule import Tile, choose, choose_tma, choose_vector
from aotpack.export.ops.cuda.gemm_tma_kernel import gemm_tma_kernel
from aotpack.export.ops.cuda.gemv_kernel import gemv_kernel
from aotpack.export.ops.cuda.gpu import has_tma, input_precision, limits, uses_tf32
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint, size_limit
from aotpack.export.torch_compat.operators import OpOverload

_GROUP_M = 8
# Rows up to which a product is as fast without tensor cores.
_FEW_VECTORS = 4
_LARGEST_TILE = 256
# Of the rows of a matrix that the copy engine reads, in bytes.
_TMA_ALIGNMENT = 16
# Rows of tiles that may be mostly empty.
_FEW_ROWS = 32

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


def product(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    alpha: float,
    activation: int,
    launcher: Launcher,
    residual: Tensor | None = None,
) -> Tensor:
    """`cuda_gemm`, with the function that launches kernels, and with a residual, contiguous and of the dtype and shape
    of the result, that is added before the activation.
    """
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
    shape = (*leading, b.shape[-1])
    tile = _vector_tile(x, y)
    if tile is not None:
        if residual is None:
            return launcher(_product(x, y, a.new_empty(shape), bias, alpha, activation, gemv_kernel, tile))
        result = launcher(_product(x, y, a.new_empty(shape), bias, alpha, 0, gemv_kernel, tile))
        return BY_NUMBER[activation](result + residual)
    tile = _tma_tile(x, y)
    if tile is not None:
        return launcher(_tma_product(x[0], y[0], a.new_empty(shape), bias, alpha, activation, tile, residual))
    tile, splits = _tile(x, y, residual is not None)
    if splits == 1:
        return launcher(
            _product(x, y, a.new_empty(shape), bias, alpha, activation, gemm_kernel, tile, residual=residual)
        )
    parts = a.new_empty((splits, *shape), dtype=torch.float64 if a.dtype == torch.float64 else torch.float32)
    # TorchInductor fuses the sum of the parts with what reads it.
    total = launcher(_product(x, y, parts, None, alpha, 0, gemm_kernel, tile, splits)).sum(0)
    for more in (bias, residual):
        total = total if more is None else total + more
    return BY_NUMBER[activation](total).to(a.dtype)


def _product(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor | None,
    alpha: float,
    activation: int,
    kernel: Any,
    tile: Tile,
    splits: int = 1,
    residual: Tensor | None = None,
) -> Launch:
    """`cuda_gemm` of [z, m, k] and [z, k, n]; `out` has as many elements as the product, in row-major order, and so has
    `residual`, with `gemm_kernel`.
    """
    (z, m, k), n = a.shape, b.shape[2]
    tiles: Any = (m + tile.m - 1) // tile.m * ((n + tile.n - 1) // tile.n)
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
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    if kernel is gemv_kernel:
        return Launch(kernel, (tiles, z), arguments)
    few = tile.m <= _FEW_ROWS and not (isinstance(m, int) and m % tile.m == 0)
    own = {
        "residual": a if residual is None else residual,
        "HAS_RESIDUAL": residual is not None,
        "FEW_ROWS": few,
        "SPLITS": splits,
        "GROUP_M": _GROUP_M,
        "PRECISION": input_precision(a.dtype),
    }
    return Launch(kernel, (tiles, z, splits), arguments | own)


def _tma_product(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor | None,
    alpha: float,
    activation: int,
    tile: Tile,
    residual: Tensor | None,
) -> Launch:
    """`cuda_gemm` of [m, k] and [k, n], which `gemm_tma_kernel` can read."""
    (m, k), n = a.shape, b.shape[1]
    transposed = b.stride(0) == 1
    tiles: Any = (m + tile.m - 1) // tile.m * ((n + tile.n - 1) // tile.n)
    arguments = {
        "a": a,
        "b": b.t() if transposed else b,
        # They are not read where there are none.
        "bias": out if bias is None else bias,
        "residual": out if residual is None else residual,
        "out": out,
        "M": m,
        "N": n,
        "K": k,
        "ALPHA": alpha,
        "TRANSPOSED": transposed,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
        "ACTIVATION": activation,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP_M": _GROUP_M,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    blocks = {"a": (tile.m, tile.k), "b": (tile.n, tile.k) if transposed else (tile.k, tile.n)}
    return Launch(gemm_tma_kernel, (tiles,), arguments, blocks)


def _is_small(matrices: Tensor) -> bool:
    """Whether 32 bits hold the offsets in each of the matrices, and in a tile that begins at the last element."""
    sizes = (*matrices.shape[1:], *matrices.stride()[1:])
    if not all(isinstance(size, int) for size in sizes):
        return False
    (rows, columns), (row, column) = matrices.shape[1:], matrices.stride()[1:]
    return (rows + _LARGEST_TILE) * row + (columns + _LARGEST_TILE) * column < 1 << 31


def _vector_tile(a: Tensor, b: Tensor) -> Tile | None:
    """Where `gemv_kernel` is the faster one: few rows, and columns of [z, k, n] whose elements are side by side."""
    step = b.stride(1)
    if not isinstance(step, int) or step != 1:
        return None
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    if uses_tf32(a.dtype) and size_hint(m) > _FEW_VECTORS:
        return None
    return choose_vector(size_hint(m), size_hint(n), size_hint(k), a.dtype, most_rows=size_limit(m))


def _tma_tile(a: Tensor, b: Tensor) -> Tile | None:
    """Where `gemm_tma_kernel` can read [z, m, k] and [z, k, n], and is the faster one."""
    if not has_tma() or not isinstance(a.shape[0], int) or a.shape[0] != 1:
        return None
    strides = (*a.stride()[1:], *b.stride()[1:], a.shape[2], b.shape[2])
    if not all(isinstance(stride, int) for stride in strides):
        return None
    # Rows that lie one after the other, with gaps that the copy engine can skip.
    for matrix in (a, b.mT if b.stride(1) == 1 else b):
        step, side = matrix.stride()[1:]
        if side != 1 or step < matrix.shape[2] or step * matrix.element_size() % _TMA_ALIGNMENT:
            return None
    multiprocessors, shared = limits()
    sizes = (size_hint(a.shape[1]), size_hint(b.shape[2]), size_hint(a.shape[2]))
    return choose_tma(*sizes, a.dtype, multiprocessors=multiprocessors, shared_bytes=shared)


def _tile(a: Tensor, b: Tensor, residual: bool) -> tuple[Tile, int]:
    multiprocessors, shared = limits()
    (z, m, k), n = a.shape, b.shape[2]
    sizes = (size_hint(z), size_hint(m), size_hint(n), size_hint(k))
    results = size_limit(z * m * n)
    return choose(
        *sizes,
        a.dtype,
        most_results=results,
        multiprocessors=multiprocessors,
        shared_bytes=shared,
        tf32=uses_tf32(a.dtype),
        residual=residual,
    )


OPERATOR: OpOverload = torch.ops.aotpack.cuda_gemm.default
