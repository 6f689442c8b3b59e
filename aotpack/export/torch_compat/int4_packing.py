"""How torch packs weights of 4 bits: that depends on its version and on the instructions of the processor.

Private interfaces touched (torch 2.11 to 2.13):
  aten._convert_weight_to_int4pack_for_cpu, aten._dyn_quant_pack_4bit_weight, aten._dyn_quant_matmul_4bit
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

Call = Callable[..., Any]


@dataclass(frozen=True)
class Blocks:
    """Rows [begin, end) of a matrix [n, k], in blocks of `size` rows.

    A block is uint8 [k, size / 2]. Byte j of a column has the rows `j` and `j + size / 2` of the block (`halves`), or
    the rows `2 * j` and `2 * j + 1`; the first of them in its low half.
    """

    begin: int
    end: int
    size: int
    halves: bool


def unpack(call: Call, packed: Any, n: int, k: int, layout: tuple[Blocks, ...]) -> Any:
    """The numbers of `_convert_weight_to_int4pack_for_cpu`, uint8 [n, k].

    Args:
        call: calls an operator: of tensors, or in a graph.
        packed: uint8 [n, k / 2].
        n, k: the sizes of the matrix.
        layout: of `packing_of`.
    """
    flat = call(aten.reshape.default, packed, [n * (k // 2)])
    parts = []
    for blocks in layout:
        # k bytes are two rows.
        part = call(aten.slice.Tensor, flat, 0, blocks.begin // 2 * k, blocks.end // 2 * k)
        pairs = call(aten.reshape.default, part, [-1, k, blocks.size // 2])
        low = call(aten.bitwise_and.Scalar, pairs, 15)
        high = call(aten.bitwise_right_shift.Tensor_Scalar, pairs, 4)
        both = call(aten.stack.default, [low, high], 1 if blocks.halves else 3)
        rows = call(aten.permute.default, both, [0, 1, 3, 2] if blocks.halves else [0, 2, 3, 1])
        parts.append(call(aten.reshape.default, rows, [-1, k]))
    return parts[0] if len(parts) == 1 else call(aten.cat.default, parts)


def pack(call: Call, numbers: Any, n: int, k: int, layout: tuple[Blocks, ...]) -> Any:
    """The inverse of `unpack`, of integers of any dtype."""
    whole = call(aten.to.dtype, numbers, torch.uint8)
    parts = []
    for blocks in layout:
        half = blocks.size // 2
        rows = call(aten.slice.Tensor, whole, 0, blocks.begin, blocks.end)
        rows = call(aten.reshape.default, rows, [-1, *((2, half) if blocks.halves else (half, 2)), k])
        axis = 1 if blocks.halves else 2
        low, high = (call(aten.select.int, rows, axis, place) for place in (0, 1))
        low = call(aten.bitwise_and.Scalar, low, 15)
        pairs = call(aten.bitwise_or.Tensor, low, call(aten.bitwise_left_shift.Tensor_Scalar, high, 4))
        parts.append(call(aten.reshape.default, call(aten.permute.default, pairs, [0, 2, 1]), [-1]))
    flat = parts[0] if len(parts) == 1 else call(aten.cat.default, parts)
    return call(aten.reshape.default, flat, [n, k // 2])


@functools.cache
def packing_of(n: int) -> tuple[Blocks, ...] | None:
    """Where this torch puts the rows of matrices with `n` rows on this machine; None for a way that is not known.

    Known patterns are packed to find out.
    """
    places = torch.arange(2 * n, dtype=torch.int32).reshape(n, 2)
    digits = [(places >> shift) & 15 for shift in range(0, max((2 * n - 1).bit_length(), 1), 4)]
    try:
        packed = [aten._convert_weight_to_int4pack_for_cpu(digit.contiguous(), 1) for digit in digits]
    except RuntimeError:  # torch packs no such matrix
        return None
    if any(p.dtype != torch.uint8 or p.shape != (n, 1) for p in packed):
        return None
    for layout in _layouts(n):
        if all(torch.equal(unpack(_apply, p, n, 2, layout), d) for p, d in zip(packed, digits, strict=True)):
            return layout
    return None


def _layouts(n: int) -> list[tuple[Blocks, ...]]:
    found = []
    for size in (64, 32, 16, 128, 8):
        for halves in (True, False):
            border = n // size * size
            for rest_halves in (False, True):
                both = (Blocks(0, border, size, halves), Blocks(border, n, n - border, rest_halves))
                found.append(tuple(blocks for blocks in both if blocks.begin < blocks.end))
    return found


def _apply(operator: Any, *args: Any) -> Tensor:
    result: Tensor = operator(*args)
    return result


@functools.cache
def adds_packed_bias(dtype: torch.dtype, grouped: bool) -> bool:
    """Whether `_dyn_quant_matmul_4bit` adds a bias that was packed with the weight, which depends on torch's version.

    Args:
        dtype: of the activations.
        grouped: whether a row of the weight has several scales.
    """
    n, k, group = 2, 64, 32 if grouped else 64
    weight = torch.full((n, k // 2), 0x88, dtype=torch.uint8)
    try:
        packed = aten._dyn_quant_pack_4bit_weight(weight, torch.ones(n, k // group), torch.ones(n), group, k, n)
        result = aten._dyn_quant_matmul_4bit(torch.zeros(1, k, dtype=dtype), packed, group, k, n)
    except RuntimeError:  # torch multiplies none of these
        return False
    return bool((result == 1).all())
