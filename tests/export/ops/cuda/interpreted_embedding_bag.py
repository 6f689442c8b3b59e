"""Compares the kernel of embedding bags with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.cuda import embedding_bag
from tests.export.ops.cuda.interpreter import launched

_MODES = ("sum", "mean", "max")


def check(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    scales: Tensor | None = None,
    *,
    last: bool = False,
    padding: int = -1,
) -> None:
    wanted = F.embedding_bag(
        indices,
        weight.double(),
        offsets,
        mode=_MODES[mode],
        per_sample_weights=None if scales is None else scales.double(),
        include_last_offset=last,
        padding_idx=None if padding < 0 else padding,
    )
    found = embedding_bag.pooled(weight, indices, offsets, mode, scales, last, padding, launched)
    assert found.dtype == weight.dtype
    assert found.shape == wanted.shape
    bound = {torch.float64: 1e-12, torch.float32: 1e-6}.get(weight.dtype, 1e-2)
    torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound, equal_nan=True)


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    indices = torch.tensor([1, 2, 8, 2, 0, 8, 4, 3, 3, 7, 1])
    for mode, last, padding in itertools.product(range(3), (False, True), (-1, 2)):
        offsets = torch.tensor([0, 3, 3, 4, 11] if last else [0, 3, 3, 4])
        # A bag that has the padding only, an empty one, and a long one.
        for dtype in embedding_bag.DTYPES:
            check(r(9, 5).to(dtype), indices, offsets, mode, last=last, padding=padding)
        # Strides, and sizes that end no block.
        check(r(300, 9).mT, indices.int(), offsets.int(), mode, last=last, padding=padding)
        check(r(9, 40), indices.repeat_interleave(2)[::2], offsets, mode, last=last, padding=padding)
    for dtype in embedding_bag.DTYPES:
        check(r(9, 5).to(dtype), indices, torch.tensor([0, 3]), 0, r(11).to(dtype), padding=8)
    broken = r(9, 3)
    broken[2] = float("nan")
    broken[4] = -float("inf")
    for mode in range(3):
        check(broken, indices, torch.tensor([0, 3, 5, 6]), mode)
        check(broken, indices.sort()[0], torch.tensor([0, 3, 5, 6]), mode, padding=0)
    check(r(9, 3), indices[:0], torch.tensor([0, 0]), 0)
    # Bags of one length: a matrix of any strides in place of offsets.
    matrix, table = torch.randint(0, 9, (5, 3)), r(9, 5)
    for mode in range(3):
        for given in (matrix, matrix.mT.contiguous().mT):
            found = embedding_bag.pooled(table, given, None, mode, None, False, 2, launched)
            wanted = F.embedding_bag(matrix, table, mode=_MODES[mode], padding_idx=2)
            torch.testing.assert_close(found, wanted)


if __name__ == "__main__":
    main()
