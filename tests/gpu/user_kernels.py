"""Models that launch Triton kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.library import triton_op, wrap_triton

import aotpack

Case = tuple[Any, tuple[Any, ...], Any]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


class Added(nn.Module):
    """A kernel between operators of torch, launched on a dynamic number of elements."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24, dtype=dtype)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.linear(x)
        out = torch.empty_like(x)
        add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=64)
        return out.relu() + 1


@triton.jit
def _double(x):
    return x * 2


@triton.jit
def scale_rows_kernel(x, scale, bias, width, stride, FACTOR, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """x[i] = KIND(FACTOR * x[i] * scale[i] + bias), in place; `scale` and `bias` may be None."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < width, other=0.0).to(tl.float32) * FACTOR
    if scale is not None:
        values *= tl.load(scale + row).to(tl.float32)
    if bias is not None:
        values += tl.load(bias + columns, mask=columns < width, other=0.0)
    if KIND == "softmax":
        values = tl.where(columns < width, values, float("-inf"))
        values = tl.exp(values - tl.max(values, 0))
        values = values / tl.sum(values, 0)
    else:
        values = _double(values)
    tl.store(x + row * stride + columns, values.to(x.dtype.element_ty), mask=columns < width)


class InPlace(nn.Module):
    """Kernels that write to an input, to a view of it and to state, with None, constants and a function they call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 20))

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        rows, width = x.shape
        scale_rows_kernel[(rows,)](x, scale, None, width, x.stride(0), 0.5, BLOCK=32, KIND="softmax")
        part = x[:, :8]
        scale_rows_kernel[(rows, 1)](part, None, scale, 8, part.stride(0), 2.0, 8, "double")
        scale_rows_kernel[(4,)](self.seen, None, None, 20, 20, 1.0, BLOCK=32, KIND="double")
        self.seen += 1
        return part + 1, self.seen.sum()


def _configs() -> list[triton.Config]:
    # The first needs more shared memory than any GPU has.
    sizes = ((64, 64, 64, 12), (32, 32, 16, 2), (64, 32, 16, 2))
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps=4, num_stages=stages)
        for m, n, k, stages in sizes
    ]


@triton.autotune(configs=_configs(), key=["M", "N", "K"])
@triton.heuristics({"EVEN": lambda arguments: arguments["K"] % arguments["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K if EVEN else K - start
        x = tl.load(
            a + m[:, None] * stride_am + (start + k)[None, :] * stride_ak,
            mask=(m < M)[:, None] & (k < left)[None, :], other=0.0,
        )  # fmt: skip
        y = tl.load(
            b + (start + k)[:, None] * stride_bk + n[None, :] * stride_bn,
            mask=(k < left)[:, None] & (n < N)[None, :], other=0.0,
        )  # fmt: skip
        total = tl.dot(x, y, total, input_precision="tf32")
    tl.store(c + m[:, None] * stride_cm + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for float32 matrices of any strides, by the autotuned kernel."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n)

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"])

    matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), c.stride(0))
    return c


class Tuned(nn.Module):
    """An autotuned kernel with heuristics, on transposed operands; its sizes are dynamic."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 48))

    def forward(self, x: Tensor) -> Tensor:
        return matmul(x.sin(), self.weight.t()).tanh()


@triton_op("aotpack_tests::scaled_add", mutates_args={})
def scaled_add(x: Tensor, y: Tensor, factor: float) -> Tensor:
    out = torch.empty_like(x)
    scaled = y * factor
    wrap_triton(add_kernel)[(triton.cdiv(x.numel(), 32),)](x, scaled, out, x.numel(), BLOCK=32)
    return out


@triton_op("aotpack_tests::doubled_", mutates_args={"x"})
def doubled_(x: Tensor) -> None:
    wrap_triton(scale_rows_kernel)[(x.shape[0],)](x, None, None, x.shape[1], x.stride(0), 1.0, BLOCK=64, KIND="double")


def through_operators(x: Tensor, y: Tensor) -> Tensor:
    """Operators made of kernels, one of which writes to its argument."""
    y = scaled_add(x, y.exp(), 0.25)
    doubled_(y)
    return y.softmax(-1)


def after_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """A kernel that relies on the strides of a value whose layout passes change."""
    y = torch.conv2d(x, weight, padding=1)
    out = torch.empty_like(y)
    add_kernel[(triton.cdiv(y.numel(), 64),)](y, y, out, y.numel(), BLOCK=64)
    flat = torch.empty(y.numel())
    add_kernel[(triton.cdiv(y.numel(), 64),)](y, torch.arange(float(y.numel())), flat, y.numel(), BLOCK=64)
    return out.sum(1), flat


def user_kernels() -> dict[str, Callable[[], Case]]:
    """Name → model, example arguments and dynamic shapes."""
    rows = aotpack.Dim("rows", 1, 300)
    return {
        "user-added-dynamic": lambda: (
            Added().eval(), (torch.randn(5, 24), torch.randn(5, 24)), {"x": {0: rows}, "y": {0: "rows"}}
        ),
        "user-added-bf16": lambda: (
            Added(torch.bfloat16).eval(),
            (torch.randn(5, 24, dtype=torch.bfloat16), torch.randn(5, 24, dtype=torch.bfloat16)),
            None,
        ),
        "user-in-place": lambda: (InPlace().eval(), (torch.randn(7, 20), torch.rand(8)), None),
        "user-tuned-dynamic": lambda: (Tuned().eval(), (torch.randn(33, 48),), {"x": {0: rows}}),
        "user-operators-dynamic": lambda: (
            through_operators, (torch.randn(6, 50), torch.randn(6, 50)), {"x": {0: rows}, "y": {0: "rows"}}
        ),
        "user-after-convolution": lambda: (
            after_convolution, (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)), None
        ),
    }  # fmt: skip
