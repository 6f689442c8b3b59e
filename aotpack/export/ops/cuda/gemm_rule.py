"""Which tile a matrix product gets: a static rule in place of timing.

Fitted on products of transformers on an H200, those of few rows on an H100 (bench/gpu_kernels.py): a tile is chosen for
the number of blocks that keeps most multiprocessors busy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from aotpack.export.ops.cuda.block_sizes import product_block


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


# For `gemv_kernel`: rows and columns up to which a tile is the fastest, None for any number.
_Vectors = tuple[tuple[int, int | None, Tile], ...]
_VECTORS_HALVES: _Vectors = (
    (1, None, Tile(1, 2, 1024, 1, 1)),
    (2, 2048, Tile(2, 2, 1024, 2, 1)),
    (2, None, Tile(2, 2, 512, 1, 1)),
    (4, 1024, Tile(4, 2, 1024, 4, 1)),
    (4, 2048, Tile(4, 1, 512, 1, 1)),
)
_VECTORS_FULL: _Vectors = (
    (1, None, Tile(1, 1, 512, 1, 1)),
    (4, 1024, Tile(4, 1, 512, 2, 1)),
    (4, None, Tile(4, 1, 256, 1, 1)),
    (8, None, Tile(8, 1, 256, 2, 1)),
    (16, 1024, Tile(8, 1, 256, 2, 1)),
)
# How often as many rows as the example has there may be.
_VECTORS_VARY = 4

# Largest first, each with the blocks per multiprocessor from which it is worth its size.
_Tiles = tuple[tuple[float, Tile], ...]
_ROWS_16: _Tiles = ((1.8, Tile(16, 64, 128, 4, 4)), (0.0, Tile(16, 32, 256, 4, 4)))
_ROWS_32: _Tiles = ((0.0, Tile(32, 32, 256, 4, 4)),)
_LARGE = 0.68
_LARGEST, _TALL = Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 4, 3)
# How much faster the largest tile computes its elements where both keep the multiprocessors equally busy.
_LARGEST_SPEED = 1.06
# Up to so many columns, and from so many blocks per multiprocessor, of which two run at a time with this depth.
_NARROW = 64
_PAIRS: _Tiles = ((1.01, Tile(64, 64, 64, 4, 5)),)
_HALVES: _Tiles = (
    (0.5, Tile(64, 64, 128, 4, 4)),
    (0.6, Tile(64, 32, 128, 4, 4)),
    (0.0, Tile(64, 16, 128, 4, 4)),
)
# Products of single precision are three on tensor cores. The largest is chosen where it has no more rounds of blocks.
_FULL_LARGEST = Tile(64, 128, 32, 4, 3)
_FULL: _Tiles = (
    (0.9, Tile(64, 64, 32, 4, 3)),
    (0.9, Tile(32, 64, 64, 4, 3)),
    (0.9, Tile(32, 32, 64, 4, 3)),
    (0.0, Tile(16, 32, 64, 4, 4)),
)
_DOUBLE: _Tiles = ((0.0, Tile(32, 32, 16, 4, 2)),)


@dataclass(frozen=True)
class _Division:
    """How sums are divided: elements of a part at least, blocks per multiprocessor at most, and tiles by the rows up to
    which they are used, None for any number.
    """

    shortest: int
    busy: int
    tiles: tuple[tuple[int | None, Tile], ...]


_DIVIDED_FEW = _Division(768, 2, ((16, Tile(16, 32, 128, 4, 5)), (32, Tile(32, 32, 128, 4, 5))))
_DIVIDED_HALVES = _Division(768, 1, ((None, Tile(64, 64, 128, 4, 4)),))
_DIVIDED_FULL = _Division(
    192, 3, ((32, Tile(16, 32, 64, 4, 4)), (64, Tile(64, 32, 32, 4, 4)), (None, Tile(64, 64, 32, 4, 3)))
)
# Of the shortest parts: sums that are long enough to be divided.
_FEWEST_PARTS = 4
_MOST_SPLITS = 8
# Of the parts of all sums, in bytes.
_LARGEST_WORKSPACE = 64 << 20


def choose(
    batch: int,
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    *,
    most_results: int | None,
    multiprocessors: int,
    shared_bytes: int,
    tf32: bool = False,
    residual: bool = False,
) -> tuple[Tile, int]:
    """The tile of a product of `batch` matrices [m, k] @ [k, n], and among how many blocks its sums are divided.

    Args:
        batch, m, n, k: sizes; those of the example call where they are dynamic.
        dtype: of both matrices.
        most_results: the largest number of elements of the result; None where there is no limit.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.
        tf32: whether float32 is multiplied in TF32: in tiles as for halves, of half the depth.
        residual: whether the kernel adds one.
    """
    full, few = dtype == torch.float32 and not tf32, m <= 32
    tile, splits = None, 1
    if dtype != torch.float64:
        division = _DIVIDED_FULL if full else _DIVIDED_FEW if few else _DIVIDED_HALVES
        tile, splits = _divided(division, batch, m, n, k, most_results, multiprocessors)
    if splits == 1 or tile is None:
        halves = _halves(batch, m, n, multiprocessors, residual) if not few else _ROWS_16 if m <= 16 else _ROWS_32
        tiles = _DOUBLE if dtype == torch.float64 else _full(batch, m, n, multiprocessors) if full else halves
        tile = next(t for busy, t in tiles if batch * _blocks(t, m, n) >= busy * multiprocessors)
    tile = replace(tile, k=product_block(k, tile.k // 2 if tf32 else tile.k))
    while tile.shared_bytes(dtype.itemsize) > shared_bytes and tile.stages > 1:
        tile = replace(tile, stages=tile.stages - 1)
    return tile, splits


# For `gemm_tma_kernel`, of which two blocks run on a multiprocessor at a time. Fitted on layers of transformers, whose
# weights are not in the L2 cache, on an H100.
_TMA_LARGE, _TMA_TALL = Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 4, 4)
# Blocks per multiprocessor from which the large tile is faster than `gemm_kernel`, with longer sums and shorter ones.
_TMA_BUSY, _TMA_BUSY_SHORT, _TMA_LONG = 1.4, 2.0, 768
_TMA_SHORTEST = 256


def choose_tma(m: int, n: int, k: int, dtype: torch.dtype, *, multiprocessors: int, shared_bytes: int) -> Tile | None:
    """The tile for `gemm_tma_kernel`.

    Args:
        m, n, k: sizes; those of the example call where they are dynamic.
        dtype: of both matrices.
        multiprocessors: of the GPU.
        shared_bytes: what a block may have of shared memory.

    Returns:
        None where `gemm_kernel` is as fast.
    """
    if dtype.itemsize != 2 or k < _TMA_SHORTEST or min(m, n) <= _NARROW:
        return None
    least = multiprocessors * (_TMA_BUSY if k >= _TMA_LONG else _TMA_BUSY_SHORT)
    if multiprocessors < _blocks(_TMA_TALL, m, n) <= 2 * multiprocessors:
        tile = _TMA_TALL
    elif _blocks(_TMA_LARGE, m, n) >= least:
        tile = _TMA_LARGE
    else:
        return None
    return tile if tile.shared_bytes(dtype.itemsize) <= shared_bytes else None


def choose_vector(m: int, n: int, k: int, dtype: torch.dtype, *, most_rows: int | None) -> Tile | None:
    """The tile for `gemv_kernel` of a product whose second matrix has the elements of a column side by side.

    Args:
        m, n, k: sizes; those of the example call where they are dynamic.
        dtype: of both matrices.
        most_rows: the largest number of rows of the first matrix; None where there is no limit.

    Returns:
        None where `gemm_kernel` is faster.
    """
    if most_rows is None or most_rows > _VECTORS_VARY * m or dtype == torch.float64:
        return None
    for rows, columns, tile in _VECTORS_FULL if dtype == torch.float32 else _VECTORS_HALVES:
        if m <= rows and (columns is None or n <= columns):
            return replace(tile, k=product_block(k, tile.k))
    return None


def _divided(
    division: _Division, batch: int, m: int, n: int, k: int, most_results: int | None, multiprocessors: int
) -> tuple[Tile, int]:
    tile = next(t for rows, t in division.tiles if rows is None or m <= rows)
    if k < _FEWEST_PARTS * division.shortest or most_results is None:
        return tile, 1
    blocks = max(1, batch * _blocks(tile, m, n))
    most = min(division.busy * multiprocessors // blocks, k // division.shortest, _MOST_SPLITS)
    # A power of two, so that parts are equally long.
    splits = 1 << max(0, most.bit_length() - 1)
    return tile, splits if 4 * splits * most_results <= _LARGEST_WORKSPACE else 1


def _full(batch: int, m: int, n: int, multiprocessors: int) -> _Tiles:
    """Tiles for products of single precision."""

    def rounds(tile: Tile) -> int:
        """Of the multiprocessor with most blocks, in elements."""
        return -(-batch * _blocks(tile, m, n) // multiprocessors) * tile.m * tile.n

    smaller = _FULL[0][1]
    return ((0.0, _FULL_LARGEST),) if rounds(_FULL_LARGEST) <= rounds(smaller) > smaller.m * smaller.n else _FULL


def _halves(batch: int, m: int, n: int, multiprocessors: int, residual: bool) -> _Tiles:
    """Tiles for products of half precision with many rows."""
    if n <= _NARROW or batch * _blocks(_LARGEST, m, n) < _LARGE * multiprocessors:
        return _PAIRS + _HALVES

    def seconds(tile: Tile, speed: float) -> float:
        """Of the multiprocessor with most blocks, for some second."""
        most = -(-batch * _blocks(tile, m, n) // multiprocessors)
        return most * tile.m * tile.n / speed

    # One block does not keep a multiprocessor busy, and with a residual there are registers for one only.
    alone = residual or batch * _blocks(_LARGEST, m, n) <= multiprocessors
    tall = alone or seconds(_TALL, 1.0) < seconds(_LARGEST, _LARGEST_SPEED)
    return ((0.0, _TALL if tall else _LARGEST),)


def _blocks(tile: Tile, m: int, n: int) -> int:
    return -(-m // tile.m) * -(-n // tile.n)
