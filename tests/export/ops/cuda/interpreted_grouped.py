"""Compares the kernels of grouped products with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotpack.export.ops import grouped_mm, grouped_outer
from aotpack.export.ops.cuda import grouped
from tests.export.ops.cuda.interpreter import launched

# Not bfloat16: the interpreter multiplies its bits as integers.
_BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}


def _compare(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    assert found.is_contiguous()
    bound = _BOUNDS[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound * 4)


def check_rows(x: Tensor, w: Tensor, ends: Tensor) -> None:
    _compare(grouped.rows_product(x, w, ends, launched), grouped_mm(x.double(), w.double(), ends), x.dtype)


def check_outer(a: Tensor, b: Tensor, ends: Tensor) -> None:
    _compare(grouped.outer_product(a, b, ends, launched), grouped_outer(a.double(), b.double(), ends), a.dtype)


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    # Empty groups in all places, rows of no group, one group, tiles that groups end within and at.
    layouts = (
        (37, [0, 5, 5, 37]),
        (37, [1, 1, 1, 1]),
        (16, [0, 0, 0, 0]),
        (1, [0, 1, 1, 1]),
        (0, [0, 0, 0, 0]),
        (3, [3]),
        (300, [16, 145, 273]),
    )
    for dtype in _BOUNDS:
        for rows, ends in layouts:
            where = torch.tensor(ends, dtype=torch.int32)
            check_rows(r(rows, 20).to(dtype), r(len(ends), 20, 9).to(dtype), where)
            check_outer(r(5, rows).to(dtype), r(rows, 9).to(dtype), where)
    ends = torch.tensor([0, 7, 30, 40])
    # Of any strides; sizes of whole blocks; no columns and no sums.
    check_rows(r(128, 41).mT[:40], r(4, 70, 128).mT, ends)
    check_rows(r(40, 20)[:, ::2], r(10, 70, 4).permute(2, 0, 1), ends.repeat_interleave(2)[::2].int())
    check_outer(r(40, 128).mT, r(80, 140)[::2, ::2], ends.repeat_interleave(2)[::2].int())
    check_rows(r(40, 0), r(4, 0, 3), ends)
    check_rows(r(40, 1), r(4, 1, 1), ends)
    check_outer(r(1, 40), r(40, 1), ends)
    # As many groups as fill a vector, and as leave one place.
    for groups in (7, 8):
        check_rows(r(40, 3), r(groups, 3, 5), torch.randint(0, 40, (groups,)).sort()[0])


if __name__ == "__main__":
    main()
