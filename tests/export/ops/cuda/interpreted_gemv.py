"""Compares products with few rows, and products whose sums are divided, with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import gemm
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_rule import Tile
from aotpack.export.ops.cuda.gemv_kernel import gemv_kernel
from tests.export.ops.cuda.interpreted_gemm import BOUNDS
from tests.export.ops.cuda.interpreter import launched


def check(
    kernel: Any, a: Tensor, b: Tensor, bias: Tensor | None = None, alpha: float = 1.0, activation: int = 0
) -> Tensor:
    wanted = alpha * (a.double() @ b.double())
    wanted = BY_NUMBER[activation](wanted if bias is None else wanted + bias.double())
    for small in (False, True):
        gemm._is_small = lambda _, small=small: small  # type: ignore[assignment]
        calls: list[Any] = []
        found = gemm.product(a, b, bias, alpha, activation, lambda call, calls=calls: launched(call, calls))
        assert calls == [kernel]
        assert found.is_contiguous()
        assert found.dtype == a.dtype
        error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1)
        assert error <= BOUNDS[a.dtype], (a.shape, b.shape, a.dtype, activation, small, float(error))
    return found


def columns(k: int, n: int) -> Tensor:
    """[2, k, n], of which columns have their elements side by side, as the weights of a linear layer."""
    return torch.randn(2, n, k).mT


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    for rows, tile in ((1, Tile(1, 2, 16, 1, 1)), (3, Tile(2, 1, 32, 1, 1)), (3, Tile(4, 4, 16, 1, 1))):
        gemm.choose_vector = lambda *_, tile=tile, **__: tile  # type: ignore[assignment]
        for n, k in itertools.product((1, 7), (1, 16, 50)):
            check(gemv_kernel, r(rows, k), columns(k, n)[0], r(n))
        for dtype in BOUNDS:
            a, b = r(2, rows, 33).to(dtype), columns(33, 10).to(dtype)
            check(gemv_kernel, a, b)
            # Other strides, and one matrix for the whole batch.
            check(gemv_kernel, a.mT.contiguous().mT, b[:, :, ::2], alpha=0.5)
            check(gemv_kernel, a, b[0], b[0, 0].contiguous())
        for activation in range(7):
            check(gemv_kernel, 3 * r(rows, 8), columns(8, 5)[0], r(5), activation=activation)
    gemm.choose_vector = lambda *_, **__: None  # type: ignore[assignment]
    for splits in (2, 5):
        gemm.choose = lambda *_, splits=splits, **__: (Tile(16, 16, 16, 4, 1), splits)  # type: ignore[assignment]
        for m, n, k in itertools.product((1, 20), (1, 40), (1, 100)):
            check(gemm_kernel, r(m, k), columns(k, n), r(n))
        for dtype in BOUNDS:
            a, b = r(2, 20, 33).to(dtype), r(2, 33, 40).to(dtype)
            found = check(gemm_kernel, a, b, alpha=0.5)
            # The order of the parts is fixed.
            assert torch.equal(found, check(gemm_kernel, a, b, alpha=0.5))
    for activation in range(7):
        check(gemm_kernel, 3 * r(1, 5, 20), r(1, 20, 10), r(10), activation=activation)


if __name__ == "__main__":
    main()
