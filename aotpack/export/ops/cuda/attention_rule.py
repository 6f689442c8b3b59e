"""Which tile an attention gets: a static rule in place of timing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class AttentionTile:
    """How many positions a block computes, how many keys it reads at a time, its warps, and its pipeline's depth."""

    m: int
    n: int
    warps: int
    stages: int

    def shared_bytes(self, dim: int, value_dim: int, itemsize: int) -> int:
        """What the keys and values of all stages take of shared memory, and the positions."""
        return (self.n * (dim + value_dim) * self.stages + self.m * dim) * itemsize


_FEW_ROWS = AttentionTile(16, 64, 4, 3)
# Largest first.
_HALVES = (AttentionTile(128, 64, 4, 3), AttentionTile(64, 64, 4, 3))
_FULL = AttentionTile(32, 32, 4, 2)


def choose(
    heads: int, length: int, dim: int, value_dim: int, dtype: torch.dtype, *, multiprocessors: int, shared_bytes: int
) -> AttentionTile:
    """The tile of an attention.

    Args:
        heads: of the whole batch.
        length: positions; that of the example call where it is dynamic.
        dim, value_dim: sizes of the blocks over a head.
        dtype: of queries, keys and values.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
    """
    if dtype == torch.float32:
        tile = _FULL
    elif length <= 16:
        tile = _FEW_ROWS
    else:
        busy = (t for t in _HALVES if heads * -(-length // t.m) >= multiprocessors)
        tile = next(busy, _HALVES[-1])
        if max(dim, value_dim) > 64 and tile.m > 64:
            tile = replace(tile, warps=8)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.n > 16:
        tile = replace(tile, n=tile.n // 2)
    return tile
