"""Attentions whose gradients tests of passes compare with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from aotpack.export import aot_export
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import Step, run_passes

sdpa = F.scaled_dot_product_attention
_LENGTHS = {
    "q": {2: Dim("queries", min=1, max=64)},
    "k": {2: Dim("keys", min=1, max=64)},
    "v": {2: Dim("keys", min=1, max=64)},
}


@dataclass(frozen=True)
class Attention:
    """An attention of queries, keys and values, how many heads they have, and whether lengths are dynamic."""

    function: Callable[[Tensor, Tensor, Tensor], Tensor]
    heads: int = 3
    key_heads: int = 3
    dynamic: bool = False

    def gradients(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Of a loss that is not uniform in the result; behind the result itself."""
        operands = [t.detach().requires_grad_() for t in (q, k, v)]
        y = self.function(*operands)
        return y.detach(), *torch.autograd.grad((y * (y + 0.5)).sum(), operands)

    def inputs(self, dtype: torch.dtype, queries: int = 5, keys: int = 6) -> tuple[Tensor, ...]:
        sizes = ((self.heads, queries), (self.key_heads, keys), (self.key_heads, keys))
        return tuple(torch.randn(2, heads, length, 8).to(dtype) for heads, length in sizes)


def _all_but_one_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask[1] = False
    return sdpa(q, k, v, mask)


ATTENTIONS = {
    "plain": Attention(sdpa),
    "causal": Attention(lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.2), dynamic=True),
    "bool mask": Attention(
        lambda q, k, v: sdpa(q, k, v, q[:, :1, :, :1].detach() > k[:, :1, :, 0].detach().unsqueeze(2))
    ),
    "added mask": Attention(lambda q, k, v: sdpa(q, k, v, k[:, :1, :, 0].detach().unsqueeze(2) * 3), dynamic=True),
    "a row without keys": Attention(_all_but_one_row, 2, 2),
    "grouped": Attention(lambda q, k, v: sdpa(q, k, v, enable_gqa=True), 6, 2),
}

# Masks are converted to the dtype of the queries; all else of a graph is the same for every dtype.
IN_DTYPES = [
    *((name, torch.float32) for name in ATTENTIONS if name != "added mask"),
    ("added mask", torch.bfloat16),
    ("bool mask", torch.bfloat16),
]


def program_of(attention: Attention, dtype: torch.dtype, passes: Sequence[Step]) -> Program:
    """The program of an attention's gradients after passes, which has answered as eager does in double precision."""
    shapes: Any = _LENGTHS if attention.dynamic else None
    program = aot_export(attention.gradients, attention.inputs(dtype), dynamic_shapes=shapes)
    program = run_passes(program, passes)
    for queries, keys in ((5, 6), (1, 1), (17, 4)) if attention.dynamic else ((5, 6),):
        given = attention.inputs(dtype, queries, keys)
        found, wanted = program.runnable()(*given), attention.gradients(*(t.double() for t in given))
        for value, right in zip(found, wanted, strict=True):
            assert value.dtype == dtype and value.shape == right.shape
            bound = 1e-5 if dtype == torch.float32 else 3e-2
            assert (value.double() - right).abs().max() <= bound * right.abs().max().clamp(min=1)
    return program
