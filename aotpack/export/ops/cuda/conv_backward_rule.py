"""Which tile the gradient of a convolution's weight gets: a static rule in place of timing.

Fitted on layers of ResNet-50 and ResNet-18 on an H100.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from aotpack.export.ops.cuda.block_sizes import power_of_two, product_block
from aotpack.export.ops.cuda.gemm_rule import Tile

# Those of at least so many rows.
_HALVES = ((128, Tile(128, 64, 64, 4, 3)), (0, Tile(64, 64, 64, 4, 3)))
_FULL = ((0, Tile(64, 64, 32, 4, 3)),)
_DOUBLE = ((0, Tile(32, 32, 16, 4, 2)),)
# To divide a sum saves steps and costs as many copies of the gradient: the square of the best number of splits is about
# this times steps by elements of the gradient. Measured for half precision only; steps of the others take longer.
_HALVES_WORTH = 1 << 16
_WORTH = 1 << 19
# Blocks per multiprocessor from which there are as many as fill it twice and once: a part of a round takes as long.
_TWICE, _ONCE = 1.4, 0.7
# Blocks that share a sum at most, and steps that each of them does at least.
_MOST_SPLITS = 128
_FEWEST_STEPS = 4
# Channels from which a tile is one of a tap's channels alone.
_FEWEST_WITHIN = 16


def within(taps: int, channels: int) -> bool:
    """Whether the columns of a tile are channels of one tap, else of several."""
    return taps == 1 or channels >= _FEWEST_WITHIN


def choose(
    groups: int,
    rows: int,
    taps: int,
    channels: int,
    places: int,
    dtype: torch.dtype,
    *,
    multiprocessors: int,
    shared_bytes: int,
) -> tuple[Tile, int]:
    """The tile of a gradient, and among how many blocks its sums are divided.

    Args:
        groups: of channels.
        rows, channels: of the two operands, in a group.
        taps: of the kernel.
        places: that are summed over; those of the example call where they are dynamic.
        dtype: of the operands.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
    """
    tiles = _DOUBLE if dtype == torch.float64 else _FULL if dtype == torch.float32 else _HALVES
    columns = channels if within(taps, channels) else taps * channels
    tile = next(t for fewest, t in tiles if rows >= fewest)
    tile = replace(tile, m=product_block(rows, tile.m), n=product_block(columns, tile.n))
    repeated = taps if within(taps, channels) else 1
    blocks = groups * -(-rows // tile.m) * repeated * -(-columns // tile.n)
    steps = -(-places // tile.k)
    worth = _HALVES_WORTH if dtype.itemsize == 2 else _WORTH
    splits = math.isqrt(worth * steps // (groups * rows * taps * channels))
    busy = splits * blocks / multiprocessors
    if busy >= _ONCE:
        splits = (2 if busy >= _TWICE else 1) * multiprocessors // blocks
    splits = max(1, min(splits, steps // _FEWEST_STEPS, _MOST_SPLITS))
    while tile.shared_bytes(dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    return tile, splits


def choose_depthwise(count: int, taps: int, places: int, *, multiprocessors: int) -> tuple[tuple[int, int, int], int]:
    """Taps, places and pairs of channels of a tile, and among how many blocks sums are divided, for `count` pairs."""
    pairs = product_block(count, 32)
    block_taps = min(4, power_of_two(taps))
    block_places = 4096 // (pairs * block_taps)
    blocks = -(-taps // block_taps) * -(-count // pairs)
    steps = -(-places // block_places)
    splits = max(1, min(4 * multiprocessors // blocks, steps // _FEWEST_STEPS, _MOST_SPLITS))
    return (block_taps, block_places, pairs), splits
