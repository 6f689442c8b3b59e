"""Folds constant scales and shifts per output channel into the convolution or product before them.

`conv(x) * gamma + beta`, `linear(x) / sqrt(d)`, `x @ w + b`: weights and bias are computed in double and rounded once.
Left alone are

- results whose dtype the constant changes, as `bf16 * fp32` does;
- scales of a weight that something else reads too: the archive would hold it twice (a shift changes the bias only);
- scales of fp16 weights outside of [2^-6, 1]: the weight may leave fp16's range where the result does not.

Folded as if they were finite: 0 * inf, which a constant with such values would make NaN in eager, is not reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, same_shape, shape_of
from aotpack.export.passes.patterns.producers import CONVOLUTIONS, Channels, Producer, producer_of
from aotpack.export.passes.patterns.products import PRODUCTS, lies_along, matrix_readers

aten = torch.ops.aten

_LEAST_HALF_SCALE = 2.0**-6

Number = int | float


@dataclass(frozen=True)
class _Step:
    """y' = scale * y + shift: scale and shift are numbers times an optional constant.

    Attributes:
        scale: a number.
        by: a constant that it multiplies, or divides if `divides`.
        shift: a number.
        plus: a constant that it multiplies.
    """

    node: torch.fx.Node
    scale: Number = 1
    by: torch.fx.Node | None = None
    divides: bool = False
    shift: Number = 0
    plus: torch.fx.Node | None = None

    @property
    def scales(self) -> bool:
        return self.by is not None or self.scale != 1


@dataclass(frozen=True)
class _Arithmetic:
    """A recipe's arithmetic: steps over tensors by their positions.

    Attributes:
        bias: whether the first tensor is the producer's bias.
        beta: factor of its bias.
        steps: for each step its scale, the position of the constant that it multiplies, whether it divides, its shift,
            and the position of the constant that this multiplies; -1 for no constant.
    """

    bias: bool
    beta: Number
    steps: tuple[tuple[Number, int, bool, Number, int], ...]

    def scale_and_shift(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """In double; each a number, or a tensor of [channels] or [1]."""
        values = [tensor.double().reshape(-1) for tensor in tensors]
        scale: Any = 1.0
        shift: Any = values[0] * self.beta if self.bias else 0.0
        for number, by, divides, more, plus in self.steps:
            factor: Any = number if by < 0 else (number / values[by] if divides else number * values[by])
            scale, shift = scale * factor, shift * factor + (more if plus < 0 else more * values[plus])
        return scale, shift


def fold_scales(program: Program) -> Program:
    """Folds constant scales and shifts behind a convolution or product, which nothing else reads, into its weights."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*CONVOLUTIONS, *PRODUCTS):
        producer = producer_of(rewriter, node)
        if producer is None or producer.alpha != 1:
            continue  # a product that has a factor itself is for the packing pass
        steps = _steps(rewriter, producer)
        if not steps:
            continue
        last = steps[-1].node
        replaced = _folded(rewriter, producer, steps, last)
        for step in steps:
            rewriter.report(step.node, f"{step.node.name} folded into {producer.weight.target}")
        rewriter.replace(last, replaced)
        rewriter.changed += len(steps) - 1
    return rewriter.finish("fold-scales", f"folded {rewriter.changed} scales and shifts into the weights before them")


def _steps(rewriter: Rewriter, producer: Producer) -> list[_Step]:
    """The scales and shifts behind a producer, until something else reads a value."""
    steps: list[_Step] = []
    current = producer.node
    dtype = dtype_of(current)
    while len(current.users) == 1:
        (user,) = current.users
        step = _step(rewriter, user, current, producer)
        if step is None or dtype_of(user) != dtype or not same_shape(user, current):
            break
        if step.scales and not _may_scale(rewriter, producer, step, dtype):
            break
        steps.append(step)
        current = user
    return steps


def _may_scale(rewriter: Rewriter, producer: Producer, step: _Step, dtype: torch.dtype) -> bool:
    if matrix_readers(rewriter, producer.weight) != 1:
        return False
    if dtype != torch.float16:
        return True
    return step.by is None and _LEAST_HALF_SCALE <= abs(step.scale) <= 1


def _step(rewriter: Rewriter, node: torch.fx.Node, source: torch.fx.Node, producer: Producer) -> _Step | None:
    """What a call does to `source`, if that is a scale and a shift by constants."""
    if node.op != "call_function" or node.target not in _STEPS:
        return None
    if node.target is aten.neg.default:
        return _Step(node, scale=-1)
    arguments = bound_arguments(node)
    first, second, alpha = arguments["self"], arguments["other"], arguments.get("alpha", 1)
    if node.target in (aten.rsub.Scalar, aten.rsub.Tensor):
        first, second = second, first
    reversed_ = second is source
    other = first if reversed_ else second
    if first is second or not _is_number(alpha) or not _along(rewriter, other, producer):
        return None
    kind = _STEPS[node.target]
    constant = other if isinstance(other, torch.fx.Node) else None
    number = 1 if constant is not None else other
    if kind == "mul":
        return _Step(node, scale=number, by=constant) if math.isfinite(number) else None
    if kind == "div":
        if reversed_ or (constant is None and (number == 0 or not math.isfinite(number))):
            return None
        return _Step(node, by=constant, divides=True) if constant is not None else _Step(node, scale=1 / number)
    sign = 1 if kind == "add" else -1
    if reversed_:
        # other ± alpha * source
        return _Step(node, scale=sign * alpha, shift=number, plus=constant)
    return _Step(node, shift=sign * alpha * number, plus=constant)


_STEPS = {
    aten.mul.Tensor: "mul",
    aten.mul.Scalar: "mul",
    aten.div.Tensor: "div",
    aten.div.Scalar: "div",
    aten.add.Tensor: "add",
    aten.add.Scalar: "add",
    aten.sub.Tensor: "sub",
    aten.sub.Scalar: "sub",
    aten.rsub.Tensor: "sub",
    aten.rsub.Scalar: "sub",
    aten.neg.default: "neg",
}


def _along(rewriter: Rewriter, value: Any, producer: Producer) -> bool:
    if _is_number(value):
        return True
    constant = rewriter.constant(value)
    if constant is None or constant.is_complex() or constant.dtype == torch.bool:
        return False
    return lies_along(constant.shape, len(shape_of(producer.node)), producer.axis, producer.channels)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _folded(rewriter: Rewriter, producer: Producer, steps: Sequence[_Step], before: torch.fx.Node) -> torch.fx.Node:
    given: list[torch.fx.Node] = [] if producer.bias is None else [producer.bias]

    def position(constant: torch.fx.Node | None) -> int:
        if constant is None:
            return -1
        given.append(constant)
        return len(given) - 1

    numbered = tuple((s.scale, position(s.by), s.divides, s.shift, position(s.plus)) for s in steps)
    arithmetic = _Arithmetic(producer.bias is not None, producer.beta, numbered)
    weight, bias = producer.weight, None
    inputs = (producer.weight, *given)
    name = str(producer.weight.target).lstrip("_")
    if producer.alpha != 1 or any(step.scales for step in steps):
        weight = rewriter.derive(
            f"{name}_scaled", "folded", partial(_weight, arithmetic, producer.layout), inputs, before
        )
    if producer.bias is not None or any(step.shift != 0 for step in steps):
        bias = rewriter.derive(f"{name}_shift", "folded", partial(_bias, arithmetic, producer.channels), inputs, before)
    return producer.again(rewriter, weight, bias, before)


def _weight(arithmetic: _Arithmetic, layout: Channels, weight: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    scale, _ = arithmetic.scale_and_shift(tensors)
    return layout.scale(weight.double(), scale).to(weight.dtype)


def _bias(arithmetic: _Arithmetic, channels: int, weight: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    _, shift = arithmetic.scale_and_shift(tensors)
    if not isinstance(shift, torch.Tensor):
        return torch.full((channels,), shift, dtype=weight.dtype, device=weight.device)
    return shift.to(weight.dtype).expand(channels).contiguous()
