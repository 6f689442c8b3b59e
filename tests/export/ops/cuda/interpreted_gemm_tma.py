"""Compares the kernel of large matrix products with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools

import torch

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda.gemm import _tma_product
from aotpack.export.ops.cuda.gemm_rule import Tile
from tests.export.ops.cuda.interpreter import launched

# Sizes at the ends of tiles and beyond; rows are multiples of 16 bytes.
ROWS, COLUMNS, DEPTHS = (1, 32, 45), (64, 72), (32, 40, 104)
TILE = Tile(32, 64, 32, 4, 3)


def check(m: int, n: int, k: int, *, transposed: bool, bias: bool, residual: bool, activation: int, gap: int) -> None:
    a = torch.randn(m, k + gap).half()[:, :k]
    b = (torch.randn(n, k + gap) if transposed else torch.randn(k, n + gap)).half()
    b = b[:, :k].t() if transposed else b[:, :n]
    added = torch.randn(n).half() if bias else None
    more = torch.randn(m, n).half() if residual else None
    call = _tma_product(a, b, torch.empty(m, n).half(), added, 0.5, activation, TILE, more)
    found = launched(call).double()
    wanted = 0.5 * (a.double() @ b.double())
    for value in (added, more):
        wanted = wanted if value is None else wanted + value.double()
    wanted = BY_NUMBER[activation](wanted)
    error = (found - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    assert error <= 2e-3, (m, n, k, transposed, activation, float(error))


def main() -> None:
    torch.manual_seed(0)
    for m, n, k in itertools.product(ROWS, COLUMNS, DEPTHS):
        for transposed in (False, True):
            check(m, n, k, transposed=transposed, bias=m == 32, residual=n == 72, activation=m % 7, gap=8 * (m % 2))


if __name__ == "__main__":
    main()
