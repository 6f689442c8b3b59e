"""Linears with weights of 4 bits that torch packed, as libraries call them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

aten = torch.ops.aten


class Int4Linear(nn.Module):
    """As torchao calls the product for CPUs."""

    def __init__(self, n: int, k: int, group: int, dtype: torch.dtype, *, packs: bool = False) -> None:
        super().__init__()
        self.group, self.packs = group, packs
        numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        self.register_buffer("weight", numbers if packs else packed)
        self.register_buffer("scales_and_zeros", (torch.rand(k // group, n, 2) * 0.1).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        weight = aten._convert_weight_to_int4pack_for_cpu(self.weight, 1) if self.packs else self.weight
        flat = x.reshape(-1, x.shape[-1])
        y = aten._weight_int4pack_mm_for_cpu(flat, weight, self.group, self.scales_and_zeros)
        return y.reshape(*x.shape[:-1], -1)


class DynamicInt4Linear(nn.Module):
    """Activations are quantized per row, too."""

    def __init__(self, n: int, k: int, group: int, *, bias: bool, packs: bool = False) -> None:
        super().__init__()
        self.sizes, self.packs = (group, k, n), packs
        self.register_buffer("weight", torch.randint(0, 256, (n, k // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(n, k // group) * 0.1)
        self.register_buffer("bias", torch.randn(n) if bias else None)
        if not packs:
            self.weight = self.packed()

    def packed(self) -> Tensor:
        packed: Tensor = aten._dyn_quant_pack_4bit_weight(self.weight, self.scales, self.bias, *self.sizes)
        return packed

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = aten._dyn_quant_matmul_4bit(x, self.packed() if self.packs else self.weight, *self.sizes)
        return product
