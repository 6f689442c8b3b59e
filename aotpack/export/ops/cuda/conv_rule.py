"""Which tile a convolution gets: a static rule in place of timing, fitted on ResNet-50's on an H200."""

from __future__ import annotations

from dataclasses import replace

import torch

from aotpack.export.ops.cuda.block_sizes import product_block
from aotpack.export.ops.cuda.gemm_rule import Tile

# Largest first, each with the blocks per multiprocessor from which it is worth its size.
_HALVES = (
    (1.4, Tile(128, 128, 64, 8, 3)),
    (0.7, Tile(64, 128, 64, 4, 4)),
    (0.7, Tile(64, 64, 64, 4, 4)),
    (0.0, Tile(64, 32, 64, 4, 4)),
)
# Products of single precision are three on tensor cores.
_FULL = ((0.7, Tile(64, 64, 32, 4, 3)), (0.0, Tile(32, 64, 32, 4, 3)))
_DOUBLE = ((0.0, Tile(32, 32, 16, 4, 2)),)
_LARGEST_WITH_RESIDUAL = 64 * 128
# Steps from which a sum is divided, those that a block does at least, and blocks that share a sum at most.
_LONG_SUM = 32
_FEWEST_STEPS = 4
# Blocks per multiprocessor up to which sums are divided.
_BUSY, _BUSY_FULL = 1, 2
_MOST_SPLITS = 8
# Of taps and channels that are counted as one; and with many places, as in the first layer of a network, where fewer
# warps and a smaller depth take half the time, with their indices in registers.
_DEPTH_OF_BOTH, _WIDE_DEPTH_OF_BOTH, _WIDE, _WIDE_WARPS = 32, 16, 128, 4


def choose(
    groups: int,
    places: int,
    channels_out: int,
    taps: int,
    channels: int,
    dtype: torch.dtype,
    *,
    multiprocessors: int,
    shared_bytes: int,
    tf32: bool = False,
    residual: bool = False,
) -> tuple[Tile, int]:
    """The tile of a convolution, and among how many blocks its sums are divided.

    Args:
        groups: of channels.
        places: of the result, in the whole batch; those of the example call where they are dynamic.
        channels_out, channels: of the result and of the input, in a group.
        taps: of the kernel.
        dtype: of input and weight.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
        tf32: whether float32 is multiplied in TF32: in tiles as for halves, of half the depth.
        residual: whether the kernel adds one.
    """
    full = dtype == torch.float32 and not tf32
    tiles: tuple[tuple[float, Tile], ...] = _DOUBLE if dtype == torch.float64 else _FULL if full else _HALVES
    if tf32:
        tiles = tuple((busy, replace(tile, k=tile.k // 2)) for busy, tile in _HALVES)

    def blocks(tile: Tile) -> int:
        return groups * -(-places // tile.m) * -(-channels_out // tile.n)

    # Without more columns than there are.
    fitting = [(busy, replace(t, n=product_block(channels_out, t.n))) for busy, t in tiles]
    tile = next(t for busy, t in fitting if blocks(t) >= busy * multiprocessors)
    if residual and tile.m * tile.n > _LARGEST_WITH_RESIDUAL:
        # There are registers for one block of a larger tile only.
        tile = replace(tile, m=tile.m // 2, warps=tile.warps // 2)
    # Blocks of channels that fill a tap are read without a division for every element.
    size = tile.k
    while size > 16 and channels % size:
        size //= 2
    if not channels % size:
        tile = replace(tile, k=size)
    elif tile.m < _WIDE:
        rows = min(tile.m, _FULL[-1][1].m) if full else tile.m
        tile = replace(tile, m=rows, k=min(tile.k, _DEPTH_OF_BOTH))
    else:
        tile = replace(tile, k=_WIDE_DEPTH_OF_BOTH, warps=min(tile.warps, _WIDE_WARPS * tile.n // 64))
    steps = -(-taps * channels // tile.k)
    splits = 1
    if steps >= _LONG_SUM:
        most = (_BUSY_FULL if full else _BUSY) * multiprocessors // blocks(tile)
        splits = max(1, min(most, steps // _FEWEST_STEPS, _MOST_SPLITS))
    while tile.shared_bytes(dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    return tile, splits
