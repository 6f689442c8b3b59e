"""Which tiles the gradients of an attention get: a static rule in place of timing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class GradientTile:
    """What a block computes, how much of the other operands it reads at a time, its warps, and its pipeline's depth.

    Attributes:
        own: positions whose gradients a block computes: of queries, or of keys and values.
        other: positions of keys, or of queries, that it reads at a time.
    """

    own: int
    other: int
    warps: int
    stages: int

    def shared_bytes(self, dim: int, itemsize: int) -> int:
        """What the operands take of shared memory, the weights and their gradients, and three numbers of each position.

        Operands of one stage are there twice: as they are and transposed.
        """
        operands = 2 * dim * (self.own + self.other * max(2, self.stages))
        return (operands + 2 * self.own * self.other) * itemsize + 16 * self.other


# By the largest block over a head. With larger ones, sums do not stay in registers.
_HALVES = {64: GradientTile(64, 64, 4, 2), 128: GradientTile(64, 64, 8, 2), 256: GradientTile(64, 32, 8, 2)}
# Products of single precision are three on tensor cores.
_FULL_QUERIES = {64: GradientTile(32, 64, 4, 2), 128: GradientTile(32, 32, 4, 2), 256: GradientTile(16, 32, 8, 2)}
_FULL_KEYS = {128: GradientTile(32, 32, 4, 2), 256: GradientTile(16, 32, 8, 2)}
_TF32 = {64: GradientTile(64, 32, 4, 2), 128: GradientTile(64, 32, 8, 2), 256: GradientTile(32, 32, 8, 2)}
# From as much shared memory on, products read operands from there, not from registers. Measured on an H100. Halves of
# 256 are faster there by 64 positions at a time, which with a mask would not fit on sm_100: it copies more operands.
_LARGE = 200 << 10
_LARGE_QUERIES = {64: GradientTile(64, 64, 4, 3), 128: GradientTile(64, 64, 4, 2), 256: GradientTile(64, 32, 8, 2)}
_LARGE_KEYS = {64: GradientTile(64, 64, 4, 2), 128: GradientTile(128, 32, 8, 3), 256: GradientTile(64, 32, 8, 2)}


def choose_queries(dim: int, dtype: torch.dtype, *, shared_bytes: int, tf32: bool = False) -> GradientTile:
    """The tile of the gradient of queries.

    Args:
        dim: the size of the blocks over a head.
        dtype: of the operands.
        shared_bytes: what a block may have of shared memory.
        tf32: whether float32 is multiplied in TF32.
    """
    halves = _LARGE_QUERIES if shared_bytes >= _LARGE else _HALVES
    full = _TF32 if tf32 else _FULL_QUERIES
    return _fitting(full if dtype == torch.float32 else halves, dim, dtype, shared_bytes)


def choose_keys(dim: int, dtype: torch.dtype, *, shared_bytes: int, tf32: bool = False) -> GradientTile:
    """The tile of the gradients of keys and values; arguments as of `choose_queries`."""
    halves = _LARGE_KEYS if shared_bytes >= _LARGE else _HALVES
    full = _TF32 if tf32 else _FULL_KEYS
    return _fitting(full if dtype == torch.float32 else halves, dim, dtype, shared_bytes)


def _fitting(tiles: dict[int, GradientTile], dim: int, dtype: torch.dtype, shared_bytes: int) -> GradientTile:
    tile = next(tile for largest, tile in tiles.items() if dim <= largest)
    while tile.shared_bytes(dim, dtype.itemsize) > shared_bytes and tile.other > 16:
        tile = replace(tile, other=tile.other // 2)
    while tile.shared_bytes(dim, dtype.itemsize) > shared_bytes and tile.own > 16:
        tile = replace(tile, own=tile.own // 2)
    return tile
