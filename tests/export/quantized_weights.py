"""Linears with weights of 4 and 8 bits, written in the ways in which libraries store them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHIFTS = tuple(range(0, 32, 4))


class Quantized(nn.Module):
    """A product with a matrix that `dequantize` makes of the other tensors, [n, k]."""

    def __init__(self, dequantize: Callable[..., Tensor], bias: Tensor | None, *stored: Tensor) -> None:
        super().__init__()
        self.dequantize = dequantize
        self.register_buffer("bias", bias)
        self.count = len(stored)
        for number, tensor in enumerate(stored):
            self.register_buffer(f"stored{number}", tensor)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix(x), self.bias)

    def matrix(self, x: Tensor) -> Tensor:
        return self.dequantize(x, *(getattr(self, f"stored{i}") for i in range(self.count)))


def _scales(*sizes: int) -> Tensor:
    return torch.rand(sizes) * 0.1 + 0.01


def _ints(low: int, high: int, *sizes: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(low, high, sizes, dtype=dtype)


def int8_by_channel(n: int, k: int, group: int) -> Quantized:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return w.to(x.dtype) * scale.to(x.dtype).unsqueeze(1)

    return Quantized(dequantize, torch.randn(n), _ints(-128, 128, n, k, dtype=torch.int8), _scales(n))


def uint8_with_zeros(n: int, k: int, group: int) -> Quantized:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return (w.to(x.dtype) - zero.to(x.dtype)) * scale.to(x.dtype)

    zero = _ints(0, 256, n, 1, dtype=torch.uint8)
    return Quantized(dequantize, None, _ints(0, 256, n, k, dtype=torch.uint8), _scales(n, 1), zero)


def int8_by_group(n: int, k: int, group: int) -> Quantized:
    def dequantize(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return (w.reshape(n, -1, group).to(x.dtype) * scale.to(x.dtype).unsqueeze(-1)).reshape(n, k)

    return Quantized(dequantize, None, _ints(-128, 128, n, k, dtype=torch.int8), _scales(n, k // group))


def nibbles(n: int, k: int, group: int) -> Quantized:
    """Two numbers in each uint8, centred at 8."""

    def dequantize(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        numbers = torch.stack((w & 15, w >> 4), -1).reshape(n, -1, group).to(torch.int8) - 8
        return (numbers.to(x.dtype) * scale.to(x.dtype).unsqueeze(-1)).reshape(n, k)

    return Quantized(dequantize, torch.randn(n), _ints(0, 256, n, k // 2, dtype=torch.uint8), _scales(n, k // group))


def _packed(numbers: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Numbers of 4 bits [.., 8 m] as int32 [.., m]."""
    parts = numbers.to(torch.int64).unflatten(-1, (-1, 8))
    words = sum(parts[..., place] << (4 * slot) for slot, place in enumerate(order))
    assert isinstance(words, Tensor)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def gptq(n: int, k: int, group: int) -> Quantized:
    """GPTQ's: int32 words of 8 numbers along k, zero points less one along n, in groups along k."""
    numbers, zeros = (_ints(0, 16, *sizes, dtype=torch.int32) for sizes in ((k, n), (k // group, n)))

    def dequantize(x: Tensor, qweight: Tensor, qzeros: Tensor, scales: Tensor, shifts: Tensor) -> Tensor:
        zero = torch.bitwise_right_shift(qzeros.unsqueeze(2).expand(-1, -1, 8), shifts.unsqueeze(0)).to(torch.int8)
        zero = (torch.bitwise_and(zero, 15) + 1).reshape(-1, 1, n)
        w = torch.bitwise_right_shift(qweight.unsqueeze(1).expand(-1, 8, -1), shifts.unsqueeze(-1)).to(torch.int8)
        w = torch.bitwise_and(w, 15).reshape(-1, group, n)
        return (scales.to(x.dtype).unsqueeze(1) * (w - zero)).reshape(k, n).t()

    stored = (_packed(numbers.t()).t().contiguous(), _packed(zeros), _scales(k // group, n))
    return Quantized(dequantize, torch.randn(n), *stored, torch.tensor(SHIFTS, dtype=torch.int32))


def gptq_ordered(n: int, k: int, group: int) -> Quantized:
    """GPTQ's where columns were quantized in the order of their activations: `g_idx` has the group of each.

    As the fallbacks of AutoGPTQ and GPTQModel write it. Groups are of any size, and one is empty.
    """
    groups = k // group
    numbers, zeros = (_ints(0, 16, *sizes, dtype=torch.int32) for sizes in ((k, n), (groups, n)))
    g_idx = torch.randint(1, groups, (k,), dtype=torch.int32)

    def dequantize(x: Tensor, qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor, shifts: Tensor) -> Tensor:
        zero = torch.bitwise_right_shift(qzeros.unsqueeze(2).expand(-1, -1, 8), shifts.unsqueeze(0)).to(torch.int8)
        zero = (torch.bitwise_and(zero, 15) + 1).reshape(scales.shape)
        w = torch.bitwise_right_shift(qweight.unsqueeze(1).expand(-1, 8, -1), shifts.unsqueeze(-1)).to(torch.int8)
        w = torch.bitwise_and(w, 15)
        w = w.reshape(w.shape[0] * w.shape[1], w.shape[2])
        return (scales[g_idx.long()] * (w - zero[g_idx.long()])).to(x.dtype).t()

    stored = (_packed(numbers.t()).t().contiguous(), _packed(zeros), _scales(groups, n), g_idx)
    return Quantized(dequantize, torch.randn(n), *stored, torch.tensor(SHIFTS, dtype=torch.int32))


def awq(n: int, k: int, group: int) -> Quantized:
    """AWQ's: int32 words of 8 numbers along n, in its order."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    back = tuple(order.index(place) for place in range(8))
    numbers, zeros = (_ints(0, 16, *sizes, dtype=torch.int32) for sizes in ((k, n), (k // group, n)))

    def unpacked(words: Tensor) -> Tensor:
        parts = [(words >> (4 * slot)) & 15 for slot in back]
        return torch.stack(parts, -1).flatten(-2)

    def dequantize(x: Tensor, qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Tensor:
        zero = unpacked(qzeros).repeat_interleave(group, 0)
        scale = scales.repeat_interleave(group, 0)
        return ((unpacked(qweight) - zero) * scale.to(x.dtype)).t()

    return Quantized(dequantize, None, _packed(numbers, order), _packed(zeros, order), _scales(k // group, n))


# With the bits of a number in the archive.
FORMS: dict[str, tuple[Callable[[int, int, int], Quantized], int]] = {
    "int8 by channel": (int8_by_channel, 8),
    "uint8 with zero points": (uint8_with_zeros, 8),
    "int8 by group": (int8_by_group, 8),
    "nibbles": (nibbles, 4),
    "GPTQ": (gptq, 4),
    "GPTQ with g_idx": (gptq_ordered, 4),
    "AWQ": (awq, 4),
}
