"""Functions of single scores out of a graph over whole matrices of scores.

What a graph computes between `flex_scores` and `flex_softmax` becomes the steps of `ir/score_functions.py`, where it
works on single elements. Values that have one element for each query and key are computed inside, and so are integers
and bools that depend on either, which cost nothing; others are operands: they are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments, dtype_of, shape_of
from aotpack.export.ir.score_functions import COMPARISONS, KEY, QUERY, UNARY, Step
from aotpack.export.symbolic_shapes.dims import expression
from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten

# What the kernel has room for.
_MOST_OPERANDS, _MOST_DIMS = 64, 8
# A function of more steps is no function of a score.
_MOST_STEPS = 400

_DTYPES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
}  # fmt: skip

_UNARY = {getattr(aten, name).default: name for name in UNARY}
_WITH_TENSORS_AND_NUMBERS = ("add", "sub", "mul", "div", "remainder", *COMPARISONS)
_BINARY = {
    **{getattr(aten, name).Tensor: name for name in _WITH_TENSORS_AND_NUMBERS},
    **{getattr(aten, name).Scalar: name for name in _WITH_TENSORS_AND_NUMBERS},
    aten.maximum.default: "maximum",
    aten.minimum.default: "minimum",
    aten.floor_divide.default: "floor_divide",
    aten.floor_divide.Scalar: "floor_divide",
    aten.pow.Tensor_Tensor: "pow",
    aten.pow.Tensor_Scalar: "pow",
    aten.pow.Scalar: "pow",
    aten.bitwise_and.Tensor: "and",
    aten.bitwise_or.Tensor: "or",
    aten.bitwise_xor.Tensor: "xor",
    aten.bitwise_and.Scalar: "and",
    aten.bitwise_or.Scalar: "or",
    aten.bitwise_xor.Scalar: "xor",
    aten.rsub.Scalar: "sub",
    aten.rsub.Tensor: "sub",
}
_REVERSED = {aten.rsub.Scalar, aten.rsub.Tensor}
_LOGICAL = {aten.logical_and.default: "and", aten.logical_or.default: "or", aten.logical_xor.default: "xor"}
_COMPARING = {"eq", "ne", "lt", "le", "gt", "ge"}
# Each element is that of the input with the same position.
_SAME = {aten.alias.default, aten.clone.default, aten.detach.default, aten.lift_fresh_copy.default}
_FULL = {
    aten.full.default: 1, aten.scalar_tensor.default: 0, aten.full_like.default: 1, aten.new_full.default: 2,
}  # fmt: skip
_ONES = {aten.ones.default, aten.ones_like.default, aten.new_ones.default}
_ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}


class NotOfScores(Exception):
    """What no function of single scores can be; the message says why."""


class Builder:
    """Makes functions of one attention, which share operands."""

    def __init__(self, scores: torch.fx.Node) -> None:
        """`scores`: the call of `flex_scores`."""
        self._scores = scores
        self._sizes = [expression(size) for size in shape_of(scores)]
        self._depends: dict[torch.fx.Node, bool] = {scores: True}
        self.operands: list[torch.fx.Node] = []
        self.numbers: list[Any] = []

    def function(self, result: torch.fx.Node) -> tuple[Step, ...]:
        """The steps to a value that broadcasts to the scores.

        Raises:
            NotOfScores: they are none of single scores.
        """
        steps = _Steps()
        last = self._value(result, _axes(result, (0, 1, 2, 3)), steps)
        if last != len(steps.all) - 1:
            # The result is what an earlier step has computed; it is repeated at the end.
            steps.repeat(last)
        return tuple(steps.all)

    def computes(self, result: torch.fx.Node) -> bool:
        """Whether a value is other than the scores themselves."""
        while result.op == "call_function" and result.target in (*_SAME, aten.expand.default):
            result = result.args[0]  # type: ignore[assignment]
        return result is not self._scores

    # ---- values -----------------------------------------------------------------------------------------------------

    def _value(self, node: Any, axes: tuple[int, ...], steps: _Steps) -> int:
        known = steps.known.get((node, axes))
        if known is None:
            known = steps.known[node, axes] = self._computed(node, axes, steps)
        return known

    def _computed(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int:
        if node is self._scores:
            if axes != (0, 1, 2, 3):
                raise NotOfScores("scores are moved to other positions")
            return steps.add("score", dtype_of(node))
        if self._is_inside(node, axes):
            mark = steps.mark()
            try:
                return self._step(node, axes, steps)
            except NotOfScores:
                if self._depends_on_scores(node):
                    raise
                # It is computed before, as a whole.
                steps.back_to(mark)
        return self._load(node, axes, steps)

    def _is_inside(self, node: torch.fx.Node, axes: tuple[int, ...]) -> bool:
        if node.op != "call_function" or dtype_of(node) not in _DTYPES:
            return False
        if self._depends_on_scores(node) or not node.all_input_nodes:
            return True
        sizes = dict(zip(axes, shape_of(node), strict=True))
        if all(axis in sizes and expression(sizes[axis]) != 1 for axis in (QUERY, KEY)):
            return True
        # Of a row or a column: what is computed of positions alone costs less than it costs to read.
        return not dtype_of(node).is_floating_point and node.target is not aten.index.Tensor

    def _depends_on_scores(self, node: torch.fx.Node) -> bool:
        stack = [node]
        while stack:
            last = stack[-1]
            unknown = [each for each in last.all_input_nodes if each not in self._depends]
            if last in self._depends or not unknown:
                self._depends.setdefault(last, any(self._depends[each] for each in last.all_input_nodes))
                stack.pop()
            else:
                stack.extend(unknown)
        return self._depends[node]

    def _load(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int:
        if dtype_of(node) not in _DTYPES:
            raise NotOfScores(f"{dtype_of(node)} is no dtype of operands")
        return steps.add("load", dtype_of(node), where=(self._operand(node), *axes))

    def _operand(self, node: torch.fx.Node) -> int:
        if self._depends_on_scores(node):
            raise NotOfScores("an operand depends on scores")
        if len(shape_of(node)) > _MOST_DIMS:
            raise NotOfScores("an operand has many dims")
        if node not in self.operands:
            if len(self.operands) == _MOST_OPERANDS:
                raise NotOfScores("there are many operands")
            self.operands.append(node)
        return self.operands.index(node)

    # ---- operators --------------------------------------------------------------------------------------------------

    def _step(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int:
        if not isinstance(node.target, OpOverload):
            raise NotOfScores(f"{node.target} is no operator of single numbers")
        moved = self._moved(node, axes)
        if moved is not None:
            return self._value(*moved, steps)
        for kind in (self._creation, self._elementwise, self._choice, self._gather):
            found = kind(node, axes, steps)
            if found is not None:
                return found
        raise NotOfScores(f"{node.target} is no operator of single numbers")

    def _moved(self, node: torch.fx.Node, axes: tuple[int, ...]) -> tuple[torch.fx.Node, tuple[int, ...]] | None:
        """Of an operator that only moves elements: its input, and the axes that its dims lie on."""
        source: Any = node.args[0] if node.args else None
        if node.target in _SAME:
            return source, axes
        if node.target is aten.expand.default:
            return source, axes[len(axes) - len(shape_of(source)) :]
        if node.target is aten.unsqueeze.default:
            dim = int(node.args[1]) % len(axes)  # type: ignore[arg-type]
            return source, axes[:dim] + axes[dim + 1 :]
        if node.target in (aten.permute.default, aten.transpose.int):
            order = list(range(len(axes)))
            if node.target is aten.permute.default:
                order = [int(d) % len(axes) for d in node.args[1]]  # type: ignore[union-attr, arg-type]
            else:
                a, b = (int(d) % len(axes) for d in node.args[1:3])  # type: ignore[arg-type]
                order[a], order[b] = order[b], order[a]
            return source, tuple(axes[order.index(i)] for i in range(len(axes)))
        return None

    def _creation(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int | None:
        dtype = dtype_of(node)
        if node.target in (aten.arange.default, aten.arange.start, aten.arange.start_step):
            arguments = bound_arguments(node)
            plain = arguments.get("start", 0) == 0 and arguments.get("step", 1) == 1 and dtype == torch.int64
            if not plain or expression(shape_of(node)[0]) != self._sizes[axes[0]]:
                raise NotOfScores("a range is not of the positions of an axis")
            size = self._sizes[axes[0]]
            return steps.add("position", dtype, where=(axes[0], int(size) if size.is_Integer else -1))
        value: Any = None
        if node.target in _FULL:
            value = node.args[_FULL[node.target]]
        elif node.target in _ONES:
            value = 1
        elif node.target in _ZEROS:
            value = 0
        else:
            return None
        return self._cast(self._scalar(value, steps), dtype, steps)

    def _elementwise(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int | None:
        target, dtype = node.target, dtype_of(node)
        if target in _UNARY:
            return steps.add(_UNARY[target], dtype, (self._argument(node.args[0], axes, dtype, steps),))
        if target in (aten.bitwise_not.default, aten.logical_not.default):
            return steps.add("not", dtype, (self._argument(node.args[0], axes, dtype, steps),))
        if target is aten.relu.default:
            zero = self._cast(self._scalar(0, steps), dtype, steps)
            return steps.add("maximum", dtype, (self._argument(node.args[0], axes, dtype, steps), zero))
        if target is aten._to_copy.default:
            return self._argument(node.args[0], axes, dtype, steps)
        if target in _LOGICAL:
            inputs = tuple(self._argument(x, axes, torch.bool, steps) for x in node.args[:2])
            return steps.add(_LOGICAL[target], torch.bool, inputs)
        if target is aten.clamp.default:
            return self._clamped(node, axes, steps)
        name = _BINARY.get(target)
        if target in (aten.div.Tensor_mode, aten.div.Scalar_mode):
            rounding = bound_arguments(node)["rounding_mode"]
            name = {"floor": "floor_divide", "trunc": "trunc_divide"}.get(rounding, "div")
        if name is None:
            return None
        left, right = node.args[:2]
        if name == "pow":
            if not dtype.is_floating_point:
                raise NotOfScores("integers are raised to a power")
            # As in torch; the general function is slow.
            short = {2: "square", 0.5: "sqrt"}.get(right) if isinstance(right, (int, float)) else None
            if short is not None:
                return steps.add(short, dtype, (self._argument(left, axes, dtype, steps),))
        if target in _REVERSED:
            left, right = right, left
        common = _common(left, right) if name in _COMPARING else dtype
        first, second = (self._argument(x, axes, common, steps) for x in (left, right))
        alpha = bound_arguments(node).get("alpha", 1)
        if alpha != 1:
            second = steps.add("mul", common, (second, self._cast(self._scalar(alpha, steps), common, steps)))
        return steps.add(name, dtype, (first, second))

    def _clamped(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int:
        arguments, dtype = bound_arguments(node), dtype_of(node)
        value = self._argument(node.args[0], axes, dtype, steps)
        for bound, name in ((arguments["min"], "maximum"), (arguments["max"], "minimum")):
            if bound is not None:
                value = steps.add(name, dtype, (value, self._cast(self._scalar(bound, steps), dtype, steps)))
        return value

    def _choice(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int | None:
        dtype = dtype_of(node)
        if node.target in (aten.masked_fill.Scalar, aten.masked_fill.Tensor):
            other, condition, one = node.args[:3]
        elif node.target in (aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar):
            condition, one, other = node.args[:3]
        else:
            return None
        chosen = [self._argument(x, axes, dtype, steps) for x in (one, other)]
        return steps.add("where", dtype, (self._argument(condition, axes, torch.bool, steps), *chosen))

    def _gather(self, node: torch.fx.Node, axes: tuple[int, ...], steps: _Steps) -> int | None:
        if node.target is not aten.index.Tensor:
            return None
        table, indices = node.args[:2]
        whole: Any = list(indices)  # type: ignore[arg-type]
        if len(whole) != len(shape_of(table)) or any(  # type: ignore[arg-type]
            not isinstance(i, torch.fx.Node) or dtype_of(i) not in (torch.int64, torch.int32) for i in whole
        ):
            raise NotOfScores("an index is not one element")
        inputs = tuple(self._argument(i, axes, torch.int64, steps) for i in whole)
        return steps.add("gather", dtype_of(node), inputs, where=(self._operand(table),))  # type: ignore[arg-type]

    # ---- arguments --------------------------------------------------------------------------------------------------

    def _argument(self, value: Any, axes: tuple[int, ...], dtype: torch.dtype, steps: _Steps) -> int:
        """An argument, which broadcasts to the result, in the dtype that an operator computes in."""
        if isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            return self._cast(self._value(value, _axes(value, axes), steps), dtype, steps)
        return self._cast(self._scalar(value, steps), dtype, steps)

    def _scalar(self, value: Any, steps: _Steps) -> int:
        if isinstance(value, torch.fx.Node):
            if not isinstance(value.meta.get("val"), torch.SymInt):
                raise NotOfScores("a number is computed")
            if value not in self.numbers:
                self.numbers.append(value)
            return steps.add("number", torch.int64, where=(self.numbers.index(value),))
        if isinstance(value, bool):
            return steps.add("literal", torch.bool, value=str(int(value)))
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return steps.add("literal", torch.int64, value=str(value))
        if isinstance(value, float):
            return steps.add("literal", torch.float64, value=value.hex() if math.isfinite(value) else repr(value))
        raise NotOfScores(f"{value!r} is no number")

    def _cast(self, value: int, dtype: torch.dtype, steps: _Steps) -> int:
        if dtype not in _DTYPES:
            raise NotOfScores(f"{dtype} is no dtype of single numbers")
        return value if steps.all[value].dtype == _name(dtype) else steps.add("cast", dtype, (value,))


class _Steps:
    """Steps that are being made, equal ones once."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self.known: dict[tuple[Any, tuple[int, ...]], int] = {}
        self._numbers: dict[Step, int] = {}

    def add(
        self, name: str, dtype: torch.dtype, inputs: Sequence[int] = (), where: Sequence[int] = (), value: str = ""
    ) -> int:
        step = Step(name, _name(dtype), tuple(inputs), tuple(where), value)
        if step not in self._numbers:
            if len(self.all) == _MOST_STEPS:
                raise NotOfScores("there are many operators")
            self._numbers[step] = len(self.all)
            self.all.append(step)
        return self._numbers[step]

    def repeat(self, number: int) -> None:
        self.all.append(Step("cast", self.all[number].dtype, (number,)))

    def mark(self) -> int:
        return len(self.all)

    def back_to(self, mark: int) -> None:
        """Forgets the steps after a mark."""
        del self.all[mark:]
        self._numbers = {step: number for step, number in self._numbers.items() if number < mark}
        self.known = {key: number for key, number in self.known.items() if number < mark}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _axes(node: torch.fx.Node, of: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a value that broadcasts to one with the axes `of`."""
    rank = len(shape_of(node))
    if rank > len(of):
        raise NotOfScores("a value has more dims than scores")
    return of[len(of) - rank :]


def _common(*values: Any) -> torch.dtype:
    """The dtype in which two values are compared."""
    known: Callable[[Any], Any] = lambda v: v.meta["val"] if isinstance(v, torch.fx.Node) else v  # noqa: E731
    left, right = (known(value) for value in values)
    left, right = (torch.tensor(0) if isinstance(v, torch.SymInt) else v for v in (left, right))
    return torch.result_type(left, right)
