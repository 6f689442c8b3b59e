"""Linears with weights of 4 and 8 bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from aotpack.export import ops
from aotpack.export.ops import weight_packing
from aotpack.export.ops.quantized_linear import pack_numbers
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import KERNEL_DTYPES, around, values

_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    for dtype in KERNEL_DTYPES:
        for rows, k, n in around(7, 40, 45, zeros=(0,)):
            x, bias, residual = values(rows, k, dtype=dtype), values(n, dtype=dtype), values(rows, n, dtype=dtype)
            for bits, group in ((4, 16), (8, 40), (4, 7)):
                packed = pack_numbers(torch.randint(-8, 1 << (bits - 1), (n, k)).clamp(max=7), -8, bits)
                scale, offset = (
                    weight_packing.pack_linear(torch.randint(1, 5, (n, -(-k // group))).float() / 4) for _ in range(2)
                )
                whole = torch.arange(0, k + group, group, dtype=torch.int32).clamp(max=k)
                unequal = whole.clone()
                unequal[1:-1] = torch.randint(0, k + 1, (max(len(whole) - 2, 0),)).sort().values
                for more in (
                    (None, None, None, None),
                    (offset, None, bias, None),
                    (offset, None, None, residual),
                    (None, unequal, None, None),
                    (offset, unequal, bias, None),
                ):
                    arguments = (x, packed, scale, *more, n, group, 1)
                    yield Case(f"{_CPU}quantized_linear", ops.quantized_linear, arguments, packed=(1, 2, 3, 4))
