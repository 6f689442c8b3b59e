"""Attention whose scores functions of the model change and mask: `flex_attention`.

While a model is traced, scores, the functions and the softmax are separate: `flex_scores`, operators of torch over
whole matrices, `flex_softmax`. Where a pass (passes/cpu/pack_flex_attention.py) can express the functions, it makes one
`flex_attention` of them, which holds no matrix of scores. Elsewhere they are decomposed (decompositions/nn).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ir.score_functions import COMPARISONS, UNARY, Step, parse
from aotpack.export.ops.registry import define

_captured: ContextVar[bool] = ContextVar("_captured", default=False)


@contextlib.contextmanager
def scores_apart() -> Iterator[None]:
    """While active, a trace has `flex_scores` and `flex_softmax`, which have no gradients."""
    token = _captured.set(True)
    try:
        yield
    finally:
        _captured.reset(token)


def scores_captured() -> bool:
    """Whether `scores_apart` is active."""
    return _captured.get()


def score_dtype(q: Tensor) -> torch.dtype:
    """The dtype of the scores of queries."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def plain_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """`scale q k^T` for queries [b, hq, l, d] and keys [b, hk, s, d], hq a multiple of hk."""
    k = torch.repeat_interleave(k, q.shape[1] // k.shape[1], dim=1) if k.shape[1] != q.shape[1] else k
    return (q.to(score_dtype(q)) @ k.to(score_dtype(q)).transpose(-2, -1)) * scale


def plain_softmax(scores: Tensor, mask: Tensor | None, v: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted values, and the logarithm of the sum of exp of each row of scores."""
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    lse = scores.logsumexp(dim=-1)
    # A query that looks at no key gives 0.
    weights = (scores - torch.where(lse == -torch.inf, 0.0, lse).unsqueeze(-1)).exp()
    v = torch.repeat_interleave(v, scores.shape[1] // v.shape[1], dim=1) if v.shape[1] != scores.shape[1] else v
    return weights.to(v.dtype) @ v, lse


def _scores_fake(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], q.shape[2], k.shape[2]), dtype=score_dtype(q))


def _softmax(
    scores: Tensor, mask: Tensor | None, v: Tensor, blocks: Sequence[Tensor], q_block: int, kv_block: int
) -> tuple[Tensor, Tensor]:
    return plain_softmax(scores, mask, v)


def _softmax_fake(
    scores: Tensor, mask: Tensor | None, v: Tensor, blocks: Sequence[Tensor], q_block: int, kv_block: int
) -> tuple[Tensor, Tensor]:
    rows = scores.new_empty(scores.shape[:3])
    return v.new_empty((*scores.shape[:3], v.shape[3])), rows


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Sequence[Tensor],
    operands: Sequence[Tensor],
    numbers: Sequence[int],
    function: str,
    q_block: int,
    kv_block: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    functions = parse(function)
    scores = plain_scores(q, k, scale)
    changed = _compute(functions.score, scores, operands, numbers) if functions.score else scores
    mask = _compute(functions.mask, scores, operands, numbers) if functions.mask else None
    y, lse = plain_softmax(changed.expand(scores.shape), mask, v)
    return y.transpose(1, 2).contiguous().transpose(1, 2), lse


def _attention_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Sequence[Tensor],
    operands: Sequence[Tensor],
    numbers: Sequence[int],
    function: str,
    q_block: int,
    kv_block: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    y = q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3])).transpose(1, 2)
    rows = q.new_empty(q.shape[:3], dtype=score_dtype(q))
    return y, rows


def _compute(steps: Sequence[Step], scores: Tensor, operands: Sequence[Tensor], numbers: Sequence[int]) -> Tensor:
    """The last step, as a tensor that broadcasts to the scores."""
    values: list[Tensor] = []
    for step in steps:
        values.append(_value(step, [values[i] for i in step.inputs], scores, operands, numbers))
    return values[-1]


def _value(
    step: Step, inputs: list[Tensor], scores: Tensor, operands: Sequence[Tensor], numbers: Sequence[int]
) -> Tensor:
    dtype: torch.dtype = getattr(torch, step.dtype)
    if step.name == "score":
        return scores
    if step.name == "position":
        axis = step.where[0]
        return torch.arange(scores.shape[axis]).reshape([-1 if a == axis else 1 for a in range(4)])
    if step.name == "load":
        operand, axes = operands[step.where[0]], step.where[1:]
        placed = sorted(range(len(axes)), key=lambda i: axes[i])
        sizes = dict(zip(axes, operand.shape, strict=True))
        return operand.permute(placed).reshape([sizes.get(a, 1) for a in range(4)])
    if step.name == "gather":
        return operands[step.where[0]][tuple(inputs)]
    if step.name == "number":
        return torch.tensor(numbers[step.where[0]])
    if step.name == "literal":
        value = float(step.value) if dtype.is_floating_point else int(step.value)
        return torch.tensor(value, dtype=dtype)
    if step.name == "cast":
        return inputs[0].to(dtype)
    result: Tensor = _OPERATORS[step.name](*inputs)
    return result


_OPERATORS: dict[str, Any] = {
    **{
        name: getattr(torch, name)
        for name in (
            *UNARY,
            *COMPARISONS,
            *("add", "sub", "mul", "floor_divide", "remainder", "maximum", "minimum", "square", "pow", "where"),
        )
    },
    "div": torch.true_divide,
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
}

flex_scores = define("flex_scores(Tensor q, Tensor k, float scale) -> Tensor", plain_scores, _scores_fake)
flex_softmax = define(
    "flex_softmax(Tensor scores, Tensor? mask, Tensor v, Tensor[] blocks, int q_block, int kv_block) "
    "-> (Tensor, Tensor)",
    _softmax,
    _softmax_fake,
)
flex_attention = define(
    "flex_attention(Tensor q, Tensor k, Tensor v, Tensor[] blocks, Tensor[] operands, SymInt[] numbers, str function, "
    "int q_block, int kv_block, float scale) -> (Tensor, Tensor)",
    _attention,
    _attention_fake,
)
