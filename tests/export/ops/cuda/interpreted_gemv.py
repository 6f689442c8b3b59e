"""Compares products with few rows, and products whose sums are divided, with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aotpack.export.ops.activations import ACTIVATIONS
from aotpack.export.ops.cuda import gemm
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel
from aotpack.export.ops.cuda.gemm_rule import Tile
from aotpack.export.ops.cuda.gemv_kernel import gemv_kernel
from tests.export.ops.cuda.interpreted_gemm import BOUNDS
from tests.export.ops.cuda.interpreter import launched

_SILU = ACTIVATIONS["silu"][0]


def check(
    kernel: Any, a: Tensor, b: Tensor, bias: Tensor | None = None, *, alpha: float = 1.0, small: bool = True
) -> Tensor:
    """Compares silu(alpha * a @ b + bias)."""
    wanted = alpha * (a.double() @ b.double())
    wanted = F.silu(wanted if bias is None else wanted + bias.double())
    gemm._is_small = lambda _: small  # type: ignore[assignment]
    calls: list[Any] = []
    found = gemm.product(a, b, bias, alpha, _SILU, lambda call: launched(call, calls))
    assert calls == [kernel]
    assert found.is_contiguous()
    assert found.dtype == a.dtype
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    assert error <= BOUNDS[a.dtype], (a.shape, b.shape, a.dtype, small, float(error))
    return found


def columns(k: int, n: int) -> Tensor:
    """[2, k, n], of which columns have their elements side by side, as the weights of a linear layer."""
    return torch.randn(2, n, k).mT


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn
    for rows, tile in ((1, Tile(1, 2, 32, 1, 1)), (3, Tile(2, 1, 32, 1, 1)), (3, Tile(4, 4, 16, 1, 1))):
        gemm.choose_vector = lambda *_, tile=tile, **__: tile  # type: ignore[assignment]
        for n, k in ((1, 1), (7, 32), (6, 50)):
            check(gemv_kernel, r(rows, k), columns(k, n)[0], r(n))
        for dtype in BOUNDS:
            a, b = r(2, rows, 33).to(dtype), columns(33, 10).to(dtype)
            # Other strides, and one matrix for the whole batch.
            check(gemv_kernel, a.mT.contiguous().mT, b[:, :, ::2], alpha=0.5, small=False)
            check(gemv_kernel, a, b[0], b[0, 0].contiguous())
    gemm.choose_vector = lambda *_, **__: None  # type: ignore[assignment]
    for splits in (2, 5):
        gemm.choose = lambda *_, splits=splits, **__: (Tile(16, 32, 16, 4, 1), splits)  # type: ignore[assignment]
        for m, n, k in ((1, 1, 1), (20, 40, 100), (1, 33, 64)):
            check(gemm_kernel, r(m, k), r(k, n), r(n))
        for dtype in BOUNDS:
            a, b = r(2, 20, 33).to(dtype), columns(33, 40).to(dtype)
            found = check(gemm_kernel, a, b, alpha=0.5, small=False)
            # The order of the parts is fixed.
            assert torch.equal(found, check(gemm_kernel, a, b, alpha=0.5))


if __name__ == "__main__":
    main()
