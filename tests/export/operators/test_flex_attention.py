"""flex_attention through archives: the functions and block masks of real models, compared with eager in double."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import aotpack
from aotpack import Dim
from aotpack.export import ops
from tests.export.conftest import Build, check
from tests.export.pass_checks import calls, run
from tests.support.building import assert_close, check_joint, in_double

LENGTH, HEADS = 150, 4


def mask_of(function: Any, q: Tensor, k: Tensor, heads: int | None = None, size: Any = 32) -> BlockMask:
    return create_block_mask(function, q.shape[0], heads, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=size)


class Functions(nn.Module):
    """What models do to scores: each with a block mask, without, or both."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(HEADS))
        self.bias = nn.Parameter(torch.randn(HEADS, 2 * LENGTH))
        self.register_buffer("prefix", torch.tensor([5, 0, 40]))
        self.stored = create_block_mask(
            lambda b, h, i, j: (i >= j) & (i - j < 50), None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=(64, 16)
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> dict[str, Any]:
        slopes, bias, prefix = self.slopes, self.bias, self.prefix

        def alibi(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + slopes[h] * (j - i)

        def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return 2 * torch.tanh(s / 2)

        def biased(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s * 1.5 + bias[h, i - j + LENGTH]

        def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return i >= j

        def documents(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return causal(b, h, i, j) & (document[b, i] == document[b, j])

        def with_prefix(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j < prefix[b]) | causal(b, h, i, j)

        def by_head(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(h % 2 == 0, (i // 7) == (j // 7), (i - j).abs() <= 20 + 3 * h)

        def in_function(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where((i >= j) & (i - j < 9) | (j == b), s + 0.1 * (i - j), -torch.inf)

        def some_rows(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i >= 70) & (i != 100) & (j < 90)

        one = k[:, :1], v[:, :1]
        aux = AuxRequest(lse=True)
        return {
            "plain": flex_attention(q, k, v),
            "causal": flex_attention(q, k, v, block_mask=mask_of(causal, q, k)),
            "window": flex_attention(q, k, v, block_mask=self.stored),
            "alibi": flex_attention(q, k, v, score_mod=alibi),
            "alibi causal": flex_attention(q, k, v, score_mod=alibi, block_mask=mask_of(causal, q, k, size=128)),
            "capped": flex_attention(q, k, v, score_mod=capped, scale=0.7),
            "capped window": flex_attention(q, k, v, score_mod=capped, block_mask=self.stored),
            "biased": flex_attention(q, k, v, score_mod=biased),
            "biased documents": flex_attention(q, k, v, score_mod=biased, block_mask=mask_of(documents, q, k)),
            "documents": flex_attention(q, k, v, block_mask=mask_of(documents, q, k), return_aux=aux),
            "prefix": flex_attention(q, k, v, block_mask=mask_of(with_prefix, q, k)),
            "by head": flex_attention(q, k, v, block_mask=mask_of(by_head, q, k, HEADS, (8, 24))),
            "in function": flex_attention(q, k, v, score_mod=in_function),
            "grouped": flex_attention(q, *one, score_mod=alibi, block_mask=mask_of(causal, q, k), enable_gqa=True),
            "some rows": flex_attention(q, k, v, block_mask=mask_of(some_rows, q, k), return_aux=aux),
            "few queries": flex_attention(q[:, :, :3], *one, score_mod=alibi, enable_gqa=True),
            "one query": flex_attention(q[:, :, -1:], k, v, score_mod=biased),
        }


def heads(batch: int, length: int = LENGTH, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    q, k = (torch.randn(batch, HEADS, length, 24, dtype=dtype) for _ in range(2))
    return q, k, torch.randn(batch, HEADS, length, 40, dtype=dtype), torch.randint(0, 4, (batch, length)).sort().values


@pytest.fixture(scope="module")
def functions() -> Functions:
    torch.manual_seed(0)
    return Functions().eval()


def test_functions_and_masks_answer_as_eager(functions: Functions, build: Build) -> None:
    batch = Dim("batch", min=1, max=3)
    archive = build(functions, heads(2), dynamic_shapes=[{0: batch}] * 4, any_size=False)
    check(archive, functions, heads(2), heads(1), heads(3))
