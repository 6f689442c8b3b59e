"""Checks and times this project's recurrent layers against cuDNN's, on a CUDA GPU.

    python -m bench.recurrent [--sizes 1x256,32x512] [--tiles] [--json FILE]

A time is the median of replays of a CUDA graph of one layer, in microseconds for a step. `--tiles` tries tiles in place
of the rule's: what the rule is fitted with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aotpack.export.ops.cuda import recurrent
from aotpack.export.ops.cuda.block_sizes import power_of_two
from aotpack.export.ops.cuda.recurrent import StepTile
from bench.gpu_kernels import launch, microseconds

STEPS = 100
# Rows, units.
SIZES = tuple(itertools.product((1, 2, 4, 8, 32, 128), (128, 256, 512, 1024)))
_BOUNDS = {torch.float32: 1e-5, torch.float16: 1e-2}


def main() -> int:
    """1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", help="rows x units, separated by commas")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    # In the precision of archives.
    torch.backends.cudnn.allow_tf32 = False
    rows, wrong = [], 0
    print(f"{'case':34} {'error':>8} {'cuDNN':>8} {'aotpack':>8} ratio")
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")] if options.sizes else SIZES
    for row in _rows(sizes, tiles=options.tiles):
        rows.append(row)
        wrong += not row["correct"]
        values = f"{row['error']:8.1e} {row['cudnn']:8.2f} {row['aotpack']:8.2f} {row['aotpack'] / row['cudnn']:5.2f}"
        print(f"{row['case']:34} {values}{'' if row['correct'] else ' WRONG'} {row['tile']}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))
    return 1 if wrong else 0


def _rows(sizes: Sequence[tuple[int, ...]], *, tiles: bool) -> Iterator[dict[str, Any]]:
    for dtype, (rows, hidden) in itertools.product(_BOUNDS, sizes):
        yield from _layer(dtype, rows, hidden, _tiles(rows, hidden) if tiles else [None])


@torch.inference_mode()
def _layer(dtype: torch.dtype, rows: int, hidden: int, tiles: list[StepTile | None]) -> Iterator[dict[str, Any]]:
    layer = nn.LSTM(hidden, hidden, device="cuda", dtype=dtype).eval()
    x = torch.randn(STEPS, rows, hidden, device="cuda", dtype=dtype)
    w_ih, w_hh, b_ih, b_hh = (value.detach() for value in layer.parameters())
    zero = x.new_zeros(rows, hidden)
    precise = nn.LSTM(hidden, hidden, device="cuda", dtype=torch.float64)
    precise.load_state_dict(layer.state_dict())
    wanted = precise(x.double())[0]
    cudnn = microseconds([lambda: layer(x)]) / STEPS
    rule = recurrent.choose
    for tile in tiles:
        if tile is not None:
            recurrent.choose = lambda *_, tile=tile, **__: tile

        def ours() -> Any:
            given = torch.nn.functional.linear(x, w_ih, b_ih)
            return recurrent.lstm_layer(given, w_hh, b_hh, zero, zero, False, launch)[0]

        error = float((ours().double() - wanted).abs().max())
        chosen = tile or rule(rows, hidden, dtype)
        yield {
            "case": f"{rows} rows, {hidden} units, {str(dtype)[6:]}",
            "error": error,
            "correct": error <= _BOUNDS[dtype],
            "cudnn": cudnn,
            "aotpack": microseconds([ours]) / STEPS,
            "tile": f"{chosen.m}x{chosen.n}x{chosen.k} {chosen.warps}{' matrix' * chosen.matrix}",
        }
        recurrent.choose = rule


def _tiles(rows: int, hidden: int) -> list[StepTile | None]:
    power = power_of_two(rows)
    vectors = [
        StepTile(m, n, k, warps, matrix=False)
        for m, n, k, warps in itertools.product((power,), (1, 2, 4, 8), (128, 256, 512, 1024), (1, 2, 4, 8))
        if k <= hidden and 16 <= m * n * k * 4 // (32 * warps) <= 128
    ]
    matrices = [
        StepTile(m, n, k, warps, matrix=True)
        for m, n, k, warps in itertools.product((16, 32, 64), (16, 32), (32, 64, 128), (2, 4))
        if m <= max(16, power)
    ]
    return [*(vectors if rows <= 8 else []), *(matrices if rows >= 4 else [])]


if __name__ == "__main__":
    sys.exit(main())
