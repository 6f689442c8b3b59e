"""Attention with functions of scores."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from aotpack.export.ir.score_functions import BATCH, HEAD, KEY, QUERY, ScoreFunctions, Step
from aotpack.export.ops.flex_attention import flex_attention
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import KERNEL_DTYPES, around, values

_TABLE = 7


def _functions(dtype: str) -> str:
    """`score * operand[b, i, j] + table[h, j % 7] * number`, for keys up to the query."""
    score = (
        Step("score", dtype),
        Step("load", "float32", where=(0, BATCH, QUERY, KEY)),
        Step("cast", dtype, (1,)),
        Step("mul", dtype, (0, 2)),
        Step("position", "int64", where=(HEAD, -1)),
        Step("position", "int64", where=(KEY, -1)),
        Step("literal", "int64", value=str(_TABLE)),
        Step("remainder", "int64", (5, 6)),
        Step("gather", "float32", (4, 7), where=(1,)),
        Step("number", "int64", where=(0,)),
        Step("cast", "float32", (9,)),
        Step("mul", "float32", (8, 10)),
        Step("cast", dtype, (11,)),
        Step("add", dtype, (3, 12)),
    )
    mask = (
        Step("position", "int64", where=(QUERY, -1)),
        Step("position", "int64", where=(KEY, -1)),
        Step("ge", "bool", (0, 1)),
    )
    return ScoreFunctions(dtype, score, mask).text()


SINGLE, DOUBLE = _functions("float32"), _functions("float64")
# What the library of all operators has.
TEXTS = (SINGLE, DOUBLE)


def cases() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.float64):
        # Keys without a query have no block that is complete.
        for batch, heads, length, keys, depth in around(2, 4, 9, 17, 16, zeros=(0,)):
            q, k = values(batch, heads, length, depth, dtype=dtype), values(batch, heads, keys, depth, dtype=dtype)
            v = values(batch, heads, keys, depth + 3, dtype=dtype)
            # Every other element, and a broadcast dim.
            operands = [values(1, length, 2 * keys)[..., ::2], values(_TABLE, max(heads, 1)).t()]
            text = DOUBLE if dtype == torch.float64 else SINGLE
            tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1}.get(dtype)
            for blocks in ([], _blocks(length, keys)):
                sizes = (4, 8) if blocks else (0, 0)
                arguments = (q, k, v, blocks, operands, [3], text, *sizes, depth**-0.5)
                yield Case("aoti_torch_cpu_flex_attention", flex_attention, arguments, tolerance=tolerance)
    q, wrong = values(1, 1, 9, 4), _blocks(9, 9)
    wrong[1] = wrong[1] + 5
    arguments = (q, q, q, wrong, [values(1, 9, 9), values(1, _TABLE)], [3], SINGLE, 4, 8, 0.5)
    yield Case("aoti_torch_cpu_flex_attention", _refuse, arguments, refused=True)


def _blocks(length: int, keys: int) -> list[Tensor]:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, keys, device="cpu", BLOCK_SIZE=(4, 8))
    lists = mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices
    return [each for each in lists if each is not None]


def _refuse(*_: object) -> None:
    raise IndexError
