"""Compares the kernels of linear layers with int8 weights with torch, in Triton's interpreter.

A program: Triton reads the environment variable that chooses the interpreter when it is imported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.activations import BY_NUMBER
from aotpack.export.ops.cuda import int8_weight
from aotpack.export.ops.cuda.int8_weight_kernel import int8_weight_gemm_kernel, int8_weight_gemv_kernel
from tests.export.ops.cuda.interpreter import launched

# Not bfloat16: the interpreter multiplies its bits as integers.
_BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3}
_CALLS: list[Any] = []


def check(x: Tensor, w: Tensor, scale: Tensor | None = None, bias: Tensor | None = None, activation: int = 0) -> None:
    found = int8_weight.linear(x, w, scale, bias, activation, lambda call: launched(call, _CALLS))
    wanted = x.double() @ w.double().T
    wanted = wanted if scale is None else wanted * scale.double()
    wanted = BY_NUMBER[activation](wanted if bias is None else wanted + bias.double())
    assert found.dtype == x.dtype
    assert found.shape == wanted.shape
    assert found.is_contiguous()
    bound = _BOUNDS[x.dtype]
    greatest = float(wanted.abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(found.double(), wanted, rtol=bound, atol=bound * max(1.0, greatest))


def main() -> None:
    torch.manual_seed(0)
    r = torch.randn

    def weights(n: int, k: int) -> Tensor:
        return torch.randint(-128, 128, (n, k), dtype=torch.int8)

    for dtype in _BOUNDS:
        for rows in (0, 1, 2, 5, 17, 40, 130):
            x = r(rows, 70).to(dtype)
            check(x, weights(50, 70), torch.rand(50).to(dtype) * 0.01, r(50).to(dtype), activation=rows % 3)
            # One factor for all.
            check(x, weights(9, 70), torch.tensor([0.01]).expand(9))
    # Leading dims and strides; whole blocks; no factors; sizes 0 and 1.
    check(r(3, 64, 5).mT, weights(24, 64), torch.rand(48)[::2])
    check(r(1, 1, 2048), weights(2048, 24).T.contiguous(), torch.rand(24).half())
    check(r(1, 2048).half() * 0.01, weights(6, 2048))
    check(r(40, 256), weights(256, 64).T, torch.rand(64))
    check(r(3, 1), weights(1, 1), torch.rand(1), r(1))
    check(r(2, 0), weights(5, 0), torch.rand(5), r(5))
    assert {int8_weight_gemm_kernel, int8_weight_gemv_kernel} == set(_CALLS)


if __name__ == "__main__":
    main()
