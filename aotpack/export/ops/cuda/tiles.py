"""Tiles of kernels that are chosen as those of plain products."""

from __future__ import annotations

import torch

from aotpack.export.ops.cuda.gemm_rule import Tile, choose
from aotpack.export.ops.cuda.gpu import limits, uses_tf32


def undivided_tile(batch: int, m: int, n: int, k: int, dtype: torch.dtype) -> Tile:
    """That of `batch` products [m, k] @ [k, n], each sum of which one block computes."""
    multiprocessors, shared = limits()
    tile, _ = choose(
        batch,
        m,
        n,
        k,
        dtype,
        # Without a limit of results, sums are not divided.
        most_results=None,
        multiprocessors=multiprocessors,
        shared_bytes=shared,
        tf32=uses_tf32(dtype),
    )
    return tile
