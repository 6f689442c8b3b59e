"""Compares the kernel of matrix products with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda.gemm_kernel import gemm_kernel

# Not bfloat16: the interpreter multiplies its bits as integers.
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}
TILE = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 2}


def run(
    a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, activation: int, small: bool, residual: Tensor | None
) -> Tensor:
    (z, m, k), n = a.shape, b.shape[2]
    out = torch.full((z, m, n), float("nan"), dtype=a.dtype)
    grid = (-(-m // TILE["BLOCK_M"]) * -(-n // TILE["BLOCK_N"]), z)
    gemm_kernel[grid](
        a, b, a if bias is None else bias, a if residual is None else residual, out, m, n, k,
        *a.stride(), *b.stride(),
        ALPHA=alpha, HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None,
        ACTIVATION=activation, DOUBLE=a.dtype == torch.float64,
        EVEN_K=k % TILE["BLOCK_K"] == 0, SMALL=small, FEW_ROWS=small, SPLITS=1, **TILE,
    )  # fmt: skip
    return out


def check(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float = 1.0, activation: int = 0) -> None:
    wanted = alpha * (a.double() @ b.double())
    before = wanted if bias is None else wanted + bias.double()
    for small in (False, True):
        residual = torch.randn(wanted.shape).to(a.dtype) if small else None
        wanted = BY_NUMBER[activation](before if residual is None else before + residual.double())
        found = run(a, b, bias, alpha, activation, small, residual).double()
        error = (found - wanted).abs().max() / wanted.abs().max().clamp(min=1)
        assert error <= BOUNDS[a.dtype], (a.shape, b.shape, a.dtype, activation, small, float(error))


def main() -> None:
    torch.manual_seed(0)
    for m, n, k in itertools.product((1, 16, 37), (1, 32, 45), (1, 16, 50)):
        check(torch.randn(1, m, k), torch.randn(1, k, n), torch.randn(n))
    for dtype in BOUNDS:
        a, b = torch.randn(2, 20, 33).to(dtype), torch.randn(2, 33, 40).to(dtype)
        check(a, b, None)
        # Other strides: transposed matrices, a matrix for the whole batch.
        check(a.mT.contiguous().mT, b.mT.contiguous().mT, b[0, 0].contiguous())
        check(a, b[:1].expand(2, -1, -1), None, alpha=0.5)
    for activation in range(7):
        for dtype in (torch.float32, torch.float16):
            a, b = 3 * torch.randn(1, 20, 8), torch.randn(1, 8, 40)
            check(a.to(dtype), b.to(dtype), torch.randn(40).to(dtype), activation=activation)


if __name__ == "__main__":
    main()
