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
# Products of single precision are three on tensor cores. With fewer rows where there are few blocks.
_FULL, _FULL_FEW = AttentionTile(32, 64, 4, 2), AttentionTile(16, 64, 4, 2)
# Blocks per multiprocessor from which short rows of keys are read in smaller steps.
_MANY = 4
_SHORT = 512

# Attentions with few positions: a row for each position and head of a group. Fitted on an H100.
_DECODE = AttentionTile(16, 64, 4, 3)
_DECODE_FULL = AttentionTile(16, 32, 4, 2)
_MOST_ROWS = 64
# Blocks per multiprocessor below which keys are divided, from as many keys, keys that a block reads at least, and
# blocks that share the keys of a head at most.
_BUSY = 0.9
_LONG = 512
_SHORTEST_PART = 64
_MOST_SPLITS = 64
# Blocks per multiprocessor from which one that reads all keys of a group is faster than one for each head.
_BUSY_GROUPS = 0.5
# Of the results of all splits, in bytes.
_LARGEST_WORKSPACE = 64 << 20


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
    tf32: bool = False,
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
        tf32: whether float32 is multiplied in TF32: in tiles as for halves.
    """
    if dtype == torch.float32 and not tf32:
        tile = _FULL if heads * -(-length // _FULL.m) >= multiprocessors else _FULL_FEW
    else:
        tile = _FEW_ROWS if length <= _FEW_ROWS.m else _HALVES
        many = heads * -(-length // tile.m) >= _MANY * multiprocessors
        if max(dim, value_dim) > 64 or (many and keys < _SHORT):
            tile = replace(tile, n=64)
    return _fitting(tile, dim, value_dim, dtype, shared_bytes)


def choose_decode(
    groups: int,
    rows: int,
    keys: int,
    dim: int,
    value_dim: int,
    dtype: torch.dtype,
    *,
    reads_less: bool,
    most_results: int | None,
    multiprocessors: int,
    shared_bytes: int,
) -> tuple[AttentionTile, int] | None:
    """The tile of an attention with few positions, and among how many blocks the keys are divided.

    Args:
        groups: of heads that share keys, in the whole batch.
        rows: positions of all heads of a group.
        keys: how many there are; the most where that is dynamic.
        dim, value_dim, dtype, multiprocessors, shared_bytes: as `choose` has them.
        reads_less: whether groups have several heads, whose keys are read once, or a mask may hide blocks of keys.
        most_results: the largest number of elements of the result; None where there is no limit.

    Returns:
        None where `attention_kernel` is as fast.
    """
    tile = _DECODE_FULL if dtype == torch.float32 else _DECODE
    while tile.m < min(rows, _MOST_ROWS):
        tile = replace(tile, m=2 * tile.m)
    tile = _fitting(tile, dim, value_dim, dtype, shared_bytes)
    blocks = max(1, groups * -(-rows // tile.m))
    splits = 1
    # A power of two: the kernel that adds up the results reads as many.
    while (
        keys >= _LONG
        and splits * blocks < _BUSY * multiprocessors
        and splits < min(keys // _SHORTEST_PART, _MOST_SPLITS)
    ):
        splits *= 2
    if most_results is None or 4 * splits * most_results > _LARGEST_WORKSPACE:
        splits = 1
    if splits == 1:
        if not reads_less or blocks < _BUSY_GROUPS * multiprocessors:
            return None
        if max(dim, value_dim) <= 64 and dtype != torch.float32:
            tile = _fitting(replace(tile, n=128), dim, value_dim, dtype, shared_bytes)
    return tile, splits


def _fitting(tile: AttentionTile, dim: int, value_dim: int, dtype: torch.dtype, shared_bytes: int) -> AttentionTile:
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.n > 16:
        tile = replace(tile, n=tile.n // 2)
    while tile.shared_bytes(dim, value_dim, dtype.itemsize) > shared_bytes and tile.m > 16:
        tile = replace(tile, m=tile.m // 2)
    return tile
