"""`aotpack::cuda_grouped_mm` and `cuda_grouped_outer`: products of groups of rows, by kernels of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.block_sizes import power_of_two
from aotpack.export.ops.cuda.gemm_rule import Tile
from aotpack.export.ops.cuda.gpu import input_precision
from aotpack.export.ops.cuda.grouped_kernel import grouped_kernel, grouped_outer_kernel
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.ops.cuda.tiles import undivided_tile
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Blocks of `grouped_kernel` read the ends of all groups at once.
MOST_GROUPS = 1024


@triton_op("aotpack::cuda_grouped_mm", mutates_args={})
def cuda_grouped_mm(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """`aotpack::grouped_mm` on the device, without the host reading `ends`.

    Args:
        x: [rows, k], of any strides.
        w: [groups, k, n], of any strides; groups from 1 to `MOST_GROUPS`, not dynamic.
        ends: [groups], integers. Group g has the rows from ends[g - 1] to ends[g].

    Returns:
        [rows, n], contiguous, of the dtype of `x`; rows of no group are 0. Sums are of single precision, of double
        precision for double.
    """
    return rows_product(x, w, ends, launch)


@triton_op("aotpack::cuda_grouped_outer", mutates_args={})
def cuda_grouped_outer(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """`aotpack::grouped_outer` on the device, without the host reading `ends`.

    Args:
        a: [m, k], of any strides.
        b: [k, n], of any strides.
        ends: [groups], integers; groups up to `MOST_GROUPS`. Group g has the elements of k from ends[g - 1] to ends[g].

    Returns:
        [groups, m, n], contiguous, of the dtype of `a`. Sums are as in `cuda_grouped_mm`.
    """
    return outer_product(a, b, ends, launch)


def rows_product(x: Tensor, w: Tensor, ends: Tensor, launcher: Launcher) -> Tensor:
    """`cuda_grouped_mm`, with the function that launches kernels."""
    (rows, k), (groups, _, n) = x.shape, w.shape
    tile = undivided_tile(groups, max(1, -(-size_hint(rows) // groups)), size_hint(n), size_hint(k), x.dtype)
    # Of the groups, and of the rows that are left over.
    tiles: Any = (rows + tile.m - 1) // tile.m + groups
    arguments = {
        "x": x,
        "w": w,
        "ends": ends,
        "out": x.new_empty((rows, n)),
        "ROWS": rows,
        "N": n,
        "K": k,
        **dict(zip(("stride_xm", "stride_xk"), x.stride(), strict=True)),
        **dict(zip(("stride_wg", "stride_wk", "stride_wn"), w.stride(), strict=True)),
        "stride_e": ends.stride(0),
        "GROUPS": groups,
        "EVEN_K": isinstance(k, int) and k % tile.k == 0,
        "BLOCK_G": power_of_two(groups + 1),
    }
    return launcher(Launch(grouped_kernel, (tiles, (n + tile.n - 1) // tile.n), arguments | _common(x, tile)))


def outer_product(a: Tensor, b: Tensor, ends: Tensor, launcher: Launcher) -> Tensor:
    """`cuda_grouped_outer`, with the function that launches kernels."""
    (m, k), n, groups = a.shape, b.shape[1], ends.shape[0]
    tile = undivided_tile(groups, size_hint(m), size_hint(n), max(1, size_hint(k) // groups), a.dtype)
    tiles: Any = (m + tile.m - 1) // tile.m * ((n + tile.n - 1) // tile.n)
    arguments = {
        "a": a,
        "b": b,
        "ends": ends,
        "out": a.new_empty((groups, m, n)),
        "M": m,
        "N": n,
        "K": k,
        **dict(zip(("stride_am", "stride_ak"), a.stride(), strict=True)),
        **dict(zip(("stride_bk", "stride_bn"), b.stride(), strict=True)),
        "stride_e": ends.stride(0),
    }
    return launcher(Launch(grouped_outer_kernel, (tiles, groups), arguments | _common(a, tile)))


def _common(x: Tensor, tile: Tile) -> dict[str, Any]:
    return {
        "DOUBLE": x.dtype == torch.float64,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "PRECISION": input_precision(x.dtype),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


ROWS_OPERATOR: OpOverload = torch.ops.aotpack.cuda_grouped_mm.default
OUTER_OPERATOR: OpOverload = torch.ops.aotpack.cuda_grouped_outer.default
