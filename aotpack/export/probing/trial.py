"""One trial of a captured program: at given sizes it is called beside the model itself, and the answers compared.

Operators touched that torch may rename (torch 2.11 to 2.13):
  torch.ops.aten.{_scaled_dot_product_flash_attention_for_cpu, its _backward, _scaled_dot_product_attention_math}
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from aotpack.errors import AotpackError
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.expressions import size_of
from aotpack.export.symbolic_shapes.shape_env import expression
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.fake_tensors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from aotpack.export.tracing.interface import Call, draws_random_numbers
from aotpack.export.tracing.state import state_put_back
from aotpack.spec import DimRef, Spec, TensorLeaf, TensorSpec, ValueLeaf, children

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]
aten = torch.ops.aten


@dataclass(frozen=True)
class Outcome:
    """Of a trial: why the program cannot be called with the sizes, None if it can; whether the model fails there."""

    problem: str | None = None
    model_fails: bool = False

    @property
    def agrees(self) -> bool:
        return self.problem is None


@dataclass(frozen=True)
class Trial:
    """Calls of a program beside the model; see `probed` for the attributes."""

    program: Program
    call: Call
    answer: Answer
    module: torch.nn.Module
    values: bool
    writes: bool

    def of(self, program: Program) -> Trial:
        """The same for the program as it is by now."""
        return replace(self, program=program)

    def outcome(self, sizes: Mapping[str, int]) -> Outcome:
        """How the program compares with the model in a call of these sizes."""
        cut = [
            _cut(value, spec, sizes)
            for value, spec in zip(inputs_of(self.call), self.program.signature.inputs, strict=True)
        ]
        first = self._compared(cut)
        if not first.model_fails:
            return first
        # An index may be too large for a smaller tensor; 0 is none of these.
        zeros = [v.zero_() if isinstance(v, torch.Tensor) and not v.is_floating_point() else v for v in _copied(cut)]
        again = self._compared(zeros)
        return first if again.model_fails else again

    def _compared(self, inputs: Sequence[Any]) -> Outcome:
        mine, theirs = _copied(inputs), _copied(inputs)
        mode: Any = contextlib.nullcontext()
        if not self.values:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            mine, theirs = (pytree.tree_map_only(torch.Tensor, mode.from_tensor, given) for given in (mine, theirs))
        try:
            with _EmptyAttention(), mode:
                expected = list(self.answer(*self._arguments(theirs)))
        except Exception as error:
            cause = error.__cause__ if isinstance(error, AotpackError) and error.__cause__ is not None else error
            if isinstance(cause, _WITHOUT_VALUES):
                return Outcome()
            text = str(cause).strip().partition("\n")[0]
            return Outcome(f"the model fails: {type(cause).__name__}: {text}", model_fails=True)
        try:
            graph = self.program.runnable() if self.values else self.program.graph_module
            kept: Any = state_put_back(self.module) if self.values else mode
            with _EmptyAttention(), torch.no_grad(), kept:
                returned = _AsTraced(graph, mine).run(*mine)
        except _Otherwise as error:
            return Outcome(str(error).partition("\n")[0])
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            return Outcome(f"the captured program fails: {type(error).__name__}: {text}")
        return Outcome(self._difference([*expected], [*returned], mine, theirs))

    def _difference(
        self, expected: Sequence[Any], returned: Sequence[Any], mine: Sequence[Any], theirs: Sequence[Any]
    ) -> str | None:
        got = iter(zip(returned, self.program.signature.outputs, strict=True))
        values = self.values and not draws_random_numbers(self.program.graph_module)
        for leaf, wanted in zip(_leaves(self.program.signature.out_spec), expected, strict=True):
            if isinstance(leaf, ValueLeaf):
                if ValueLeaf(wanted) != leaf:
                    return f"the model returns {_shown(wanted)}, the captured program {leaf.value!r}"
                continue
            value, spec = next(got)
            if spec.number is not None:
                wanted = torch.tensor(wanted, dtype=value.dtype) if not isinstance(wanted, torch.Tensor) else wanted
            if not isinstance(wanted, torch.Tensor) or not _alike(value, wanted, values):
                text, other = _shown(wanted), _shown(value)
                return f"{spec.name} is {text}, in the captured program {'another' if text == other else other}"
        for spec, mutated, wanted in zip(self.program.signature.inputs, mine, theirs, strict=True):
            if self.writes and spec.mutated and not _alike(mutated, wanted, values):
                return f"input {spec.name!r} is written differently"
        return None

    def _arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves, tree = pytree.tree_flatten((self.call.args, self.call.kwargs))
        fresh = iter(inputs)
        taken = [
            next(fresh) if isinstance(v, torch.Tensor) or i in self.call.numbers else v for i, v in enumerate(leaves)
        ]
        args, kwargs = pytree.tree_unflatten(taken, tree)
        return args, kwargs


class _EmptyAttention(FollowingMode):
    """Attention over tensors without elements: the fused kernels of torch 2.11 divide by zero, which ends the process.

    The results are laid out as theirs are: models write views that need it.
    """

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func not in (_FUSED, _FUSED_BACKWARD) or all(t.numel() for t in args if isinstance(t, torch.Tensor)):
            return func(*args, **kwargs)
        if func is _FUSED_BACKWARD:
            return tuple(torch.zeros_like(given) for given in args[1:4])
        query, key, value = args[:3]
        result, _ = aten._scaled_dot_product_attention_math.default(
            query, key, value, kwargs.get("attn_mask"), scale=kwargs.get("scale")
        )
        batch, heads, length, _ = query.shape
        sums = query.new_zeros(batch, length, heads, dtype=torch.float32)
        return result.transpose(1, 2).contiguous().transpose(1, 2), sums.transpose(1, 2)


# What needs the values of tensors that have none cannot be tried out.
_WITHOUT_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
_FUSED = aten._scaled_dot_product_flash_attention_for_cpu.default
_FUSED_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


class _Otherwise(Exception):
    """A value has another size than the trace has."""


_VIEWS = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}


class _AsTraced(torch.fx.Interpreter):
    """Runs a graph, and compares all sizes with those of the trace: code is generated for the latter."""

    def __init__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        super().__init__(module)
        self._symbols: dict[sympy.Symbol, sympy.Integer] = {}
        for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            for traced, size in _sizes(node.meta.get("val"), value):
                expr = expression(traced)
                if len(expr.free_symbols) == 1:
                    (symbol,) = expr.free_symbols
                    solved = sympy.solve(expr - size, symbol) if expr != symbol else [sympy.Integer(size)]
                    self._symbols[symbol] = sympy.Integer(solved[0])

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Other strides at other sizes: generated code reads what a view shows wherever it lies.
        return super().call_function(_VIEWS.get(target, target), args, kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        traced = n.meta.get("val")
        pairs = zip(traced, result, strict=False) if isinstance(traced, (tuple, list)) else [(traced, result)]
        for expected, value in pairs:
            for axis, (size, actual) in enumerate(_sizes(expected, value)):
                wanted = expression(size).xreplace(self._symbols)
                if wanted.is_number and wanted != actual:
                    what = f"axis {axis} of {n.name}" if isinstance(value, torch.Tensor) else n.name
                    raise _Otherwise(f"{what} is {actual}, but was captured as {wanted}")
        return result


def _sizes(traced: Any, value: Any) -> list[tuple[Any, int]]:
    if isinstance(traced, torch.Tensor) and isinstance(value, torch.Tensor):
        if traced.dim() != value.dim():
            raise _Otherwise(f"a tensor of {value.dim()} dims was captured with {traced.dim()}")
        return list(zip(traced.shape, value.shape, strict=True))
    return [(traced, value)] if isinstance(traced, torch.SymInt) and isinstance(value, int) else []


def _cut(value: Any, spec: TensorSpec, sizes: Mapping[str, int]) -> Any:
    """An argument in these sizes: cut, or repeated from its beginning."""
    if not isinstance(value, torch.Tensor):
        if spec.formula is not None:
            return size_of(spec.formula, sizes)
        return value if spec.dim is None else sizes[spec.dim]
    result = value.detach()
    for axis, element in enumerate(spec.shape):
        old, new = result.shape[axis], size_of(element, sizes)
        if old == new:
            continue
        if old == 0:
            result = result.new_zeros([*result.shape[:axis], new, *result.shape[axis + 1 :]])
        else:
            result = result.index_select(axis, torch.arange(new) % old)
    return result.requires_grad_(value.requires_grad)


def _copied(inputs: Sequence[Any]) -> list[Any]:
    return [
        value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]


def _alike(value: torch.Tensor, wanted: torch.Tensor, values: bool) -> bool:
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return False
    if not values or wanted.numel() == 0:
        return True
    value, wanted = value.detach(), wanted.detach()
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return torch.equal(value, wanted)
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    value, wanted = value.to(wide), wanted.to(wide)
    # Another branch of the model, or another broadcast, is far off; rounding is not.
    finite = wanted[wanted.isfinite()].abs()
    tolerance = 0.02 * (float(finite.max()) if finite.numel() else 1.0) + 1e-6
    return torch.allclose(value, wanted, rtol=0.0, atol=tolerance, equal_nan=True)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)


def _leaves(spec: Spec) -> Iterator[TensorLeaf | ValueLeaf]:
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        yield spec
    for child in children(spec):
        yield from _leaves(child)


def inputs_of(call: Call) -> list[Any]:
    """The arguments that are inputs of the program."""
    return [leaf for i, leaf in enumerate(call.leaves()) if is_input(call, i, leaf)]


def is_input(call: Call, position: int, leaf: Any) -> bool:
    """Whether an argument is an input of the program, not a constant of its signature."""
    return isinstance(leaf, torch.Tensor) or position in call.numbers


def example_sizes(program: Program, call: Call) -> dict[str, int]:
    """The value of each dim in the example call."""
    found: dict[str, int] = {}
    for spec, value in zip(program.signature.inputs, inputs_of(call), strict=True):
        if spec.dim is not None:
            found[spec.dim] = int(value)
        for axis, element in enumerate(spec.shape):
            if isinstance(element, DimRef):
                found.setdefault(element.dim, (value.shape[axis] - element.add) // element.mul)
    return found
