"""Products of int8 matrices with sums in int32, by a kernel of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.cuda.int_gemm_kernel import int_gemm_kernel
from aotpack.export.ops.cuda.launch import Launch, Launcher
from aotpack.export.symbolic_shapes.hints import size_hint

_GROUP_M = 8
# By the most rows: tiles of m, n and k. Few rows read the weights once, by many blocks.
_TILES = ((16, (16, 32, 128)), (32, (32, 32, 128)), (64, (64, 64, 128)))
_LARGE = (128, 128, 64)


def int_product(a: Tensor, b: Tensor, launcher: Launcher) -> Tensor:
    """int32[m, n], contiguous, of int8[m, k] and int8[k, n] of any strides."""
    (m, k), n = a.shape, b.shape[1]
    rows = size_hint(m)
    block_m, block_n, block_k = next((tile for most, tile in _TILES if rows <= most), _LARGE)
    tiles: Any = (m + block_m - 1) // block_m * ((n + block_n - 1) // block_n)
    arguments = {
        "a": a,
        "b": b,
        "out": a.new_empty((m, n), dtype=torch.int32),
        "M": m,
        "N": n,
        "K": k,
        **dict(zip(("stride_am", "stride_ak"), a.stride(), strict=True)),
        **dict(zip(("stride_bk", "stride_bn"), b.stride(), strict=True)),
        "EVEN_K": isinstance(k, int) and k % block_k == 0,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "GROUP_M": _GROUP_M,
        "num_warps": 8 if (block_m, block_n, block_k) == _LARGE else 4,
        "num_stages": 3,
    }
    return launcher(Launch(int_gemm_kernel, (tiles,), arguments))
