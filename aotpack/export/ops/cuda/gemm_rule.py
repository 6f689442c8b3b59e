"""Which tile a matrix product gets: a static rule in place of timing.

Fitted on products of transformers on an H200: a tile is chosen for the number of blocks that keeps most
multiprocessors busy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Tile:
    """Sizes of the tile of a block, its warps, and the depth of its pipeline."""

    m: int
    n: int
    k: int
    warps: int
    stages: int

    def shared_bytes(self, itemsize: int) -> int:
        """What the operands of all stages take of shared memory."""
        return (self.m + self.n) * self.k * itemsize * self.stages


# Columns of a block and elements of each that a step reads, where a warp computes a row of results.
_VECTOR = Tile(1, 2, 1024, 1, 3)
# Rows from which tiles are faster.
_MOST_VECTORS = 1
_FEW_ROWS = Tile(16, 32, 256, 4, 4)
# Largest first, each with the blocks per multiprocessor from which it is worth its size.
_HALVES = (
    (0.68, Tile(128, 128, 64, 8, 3)),
    (0.45, Tile(64, 64, 128, 4, 4)),
    (0.6, Tile(64, 32, 128, 4, 4)),
    (0.0, Tile(64, 16, 128, 4, 4)),
)
# Products in full precision are made of scalar operations, whose operands are in registers.
_FULL = ((0.68, Tile(64, 64, 32, 4, 3)), (0.0, Tile(32, 32, 32, 4, 3)))
_DOUBLE = ((0.0, Tile(32, 32, 16, 4, 2)),)
# Elements of a sum from which it is divided, those that a block sums up at least, and blocks that share a sum at most.
_LONG_SUM = 2048
_SHORTEST_PART = 512
_MOST_SPLITS = 8
# Of the parts of all sums.
_LARGEST_WORKSPACE = 64 << 20


def choose(
    batch: int, m: int, n: int, k: int, dtype: torch.dtype, *, multiprocessors: int, shared_bytes: int
) -> tuple[Tile, int]:
    """The tile of a product of `batch` matrices [m, k] @ [k, n], and among how many blocks its sums are divided.

    Args:
        batch, m, n, k: sizes; those of the example call where they are dynamic.
        dtype: of both matrices.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
    """
    if dtype == torch.float64:
        tiles: tuple[tuple[float, Tile], ...] = _DOUBLE
    elif dtype == torch.float32:
        tiles = _FULL
    elif m <= 32:
        tiles = ((0.0, _FEW_ROWS if m <= 16 else replace(_FEW_ROWS, m=32)),)
    else:
        tiles = _HALVES

    def blocks(tile: Tile) -> int:
        return batch * -(-m // tile.m) * -(-n // tile.n)

    tile = next(t for busy, t in tiles if blocks(t) >= busy * multiprocessors)
    splits = 1
    if k >= _LONG_SUM:
        splits = max(1, min(multiprocessors // max(1, blocks(tile)), k // _SHORTEST_PART, _MOST_SPLITS))
    # No deeper than the matrices are.
    depth = max(16, min(tile.k, 1 << max(0, k - 1).bit_length()))
    tile = replace(tile, k=depth)
    while tile.shared_bytes(dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    return tile, splits


def choose_vector(most_rows: int | None, k: int, dtype: torch.dtype) -> Tile | None:
    """The tile of a product whose second matrix has the elements of a column side by side, for `gemv_kernel`.

    Args:
        most_rows: of the first matrix; None where there is no limit.
        k: elements of a row.
        dtype: of both matrices.

    Returns:
        None where the product has too many rows for this kernel.
    """
    if most_rows is None or most_rows > _MOST_VECTORS or dtype == torch.float64:
        return None
    return replace(_VECTOR, k=max(16, min(_VECTOR.k, 1 << max(0, k - 1).bit_length())))


def fits_workspace(splits: int, results: int | None) -> bool:
    """Whether the parts of sums stay small at the largest number of results; None where there is no limit."""
    return results is not None and 4 * splits * results <= _LARGEST_WORKSPACE
