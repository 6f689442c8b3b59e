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
        """What the keys and values of all stages take of shared memory, the positions, and the weights of one step,
        which Triton 3.6 passes through it.
        """
        return (self.n * (dim + value_dim) * self.stages + self.m * dim) * itemsize + 4 * self.m * self.n


# The most keys at a time: with heads of 64, halves of them.
_FEW_ROWS = AttentionTile(16, 128, 4, 3)
_HALVES = AttentionTile(64, 128, 4, 3)
_FULL = AttentionTile(32, 32, 4, 2)
# Blocks per multiprocessor from which short rows of keys are read in smaller steps.
_MANY = 4
_SHORT = 512


def choose(
    heads: int,
    length: int,
    keys: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype,
    *,
    multiprocessors: int,
    shared_bytes: int,
) -> AttentionTile:
    """The tile of an attention. Fitted on attentions of transformers on an H200.

    Args:
        heads: of the whole batch.
        length: positions; here and below, that of the example call where it is dynamic.
        keys: how many there are.
        dim, value_dim: sizes of the blocks over a head.
        dtype: of queries, keys and values.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
    """
    if dtype == torch.float32:
        tile = _FULL
    else:
        tile = _FEW_ROWS if length <= _FEW_ROWS.m else _HALVES
        many = heads * -(-length // tile.m) >= _MANY * multiprocessors
        if max(dim, value_dim) > 64 or (many and keys < _SHORT):
            tile = replace(tile, n=64)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.n > 16:
        tile = replace(tile, n=tile.n // 2)
    return tile
