"""Sizes 0 and 1, tried out: what torch takes for granted of them without saying so.

A trace is made at the sizes of the example. Where a model does something else for a size of 0 or 1 (`squeeze`, a
broadcast, a reduction of nothing), that is in no guard. So the example call is cut to these sizes, one dim after the
other, and what was captured is compared with the model itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotpack.archive.code import UndefinedError, evaluate
from aotpack.errors import AotpackError, CaptureError
from aotpack.export.capture.interface import Call, draws_random_numbers
from aotpack.export.capture.state import state_put_back
from aotpack.export.program import Program
from aotpack.export.sizes.declared import Note
from aotpack.export.sizes.guards import check_of, dim_symbol
from aotpack.export.sizes.shape_env import expression
from aotpack.spec import Dim, DimRef, ShapeElement, Spec, TensorLeaf, TensorSpec, ValueLeaf, children

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]

# The fused kernels of torch 2.11 divide by zero, which ends the process, where a tensor has no elements.
_SAFE_ATTENTION = partial(sdpa_kernel, SDPBackend.MATH)
_SMALL = (0, 1)


def probed(
    program: Program,
    call: Call,
    answer: Answer,
    module: torch.nn.Module,
    *,
    values: bool = True,
    writes: bool = True,
) -> Program:
    """The program, its dims without the sizes 0 and 1 where the model fails or the program differs from it.

    Args:
        program: as captured, before any pass.
        call: the example call.
        answer: the leaves of what the model returns.
        module: whose tensors a call may change; they are put back.
        values: whether tensors have values; otherwise shapes and dtypes alone are compared.
        writes: whether `answer` writes to its arguments where the model does.

    Raises:
        CaptureError: the user asked for such a size by the dim's `min`.
    """
    sizes = _example_sizes(program, call)
    explicit = call.declared.explicit_min if call.declared is not None else frozenset()
    for dim in program.signature.dims:
        if dim.name not in sizes:
            continue
        problems: dict[int, str] = {}
        for size in _SMALL:
            if size == sizes[dim.name] or not _admits(dim, size):
                continue
            wanted = {**sizes, dim.name: size}
            if not _fits(program, wanted):
                continue
            with _SAFE_ATTENTION():
                problem = _Trial(program, call, answer, module, values, writes).problem(wanted)
            if problem is not None:
                problems[size] = problem
        program = _without(program, dim, problems, explicit)
    return program


def _admits(dim: Dim, size: int) -> bool:
    return dim.min <= size and (dim.max is None or size <= dim.max) and size % dim.multiple_of == 0


def _fits(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether a call of these sizes is one that the program takes."""
    try:
        shapes = [_resolved(element, sizes) for spec in program.signature.inputs for element in spec.shape]
        return min(shapes, default=0) >= 0 and all(evaluate(check.code, sizes) for check in program.checks)
    except UndefinedError:
        return False


def _example_sizes(program: Program, call: Call) -> dict[str, int]:
    """The value of each dim in the example call."""
    found: dict[str, int] = {}
    for spec, value in zip(program.signature.inputs, _inputs(call), strict=True):
        if spec.dim is not None:
            found[spec.dim] = int(value)
        for axis, element in enumerate(spec.shape):
            if isinstance(element, DimRef):
                found.setdefault(element.dim, (value.shape[axis] - element.add) // element.mul)
    return found


def _leaves(spec: Spec) -> Iterator[TensorLeaf | ValueLeaf]:
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        yield spec
    for child in children(spec):
        yield from _leaves(child)


def _inputs(call: Call) -> list[Any]:
    """The arguments that are inputs of the program."""
    leaves = call.leaves()
    return [leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) or i in call.numbers]


def _resolved(element: ShapeElement, sizes: Mapping[str, int]) -> int:
    if isinstance(element, int):
        return element
    if isinstance(element, DimRef):
        return element.mul * sizes[element.dim] + element.add
    if element.code is None:
        raise UndefinedError("a size out of the data")
    return int(evaluate(element.code, sizes))


def _without(program: Program, dim: Dim, problems: Mapping[int, str], explicit: frozenset[str]) -> Program:
    """The program for the sizes of the dim that are left."""
    if not problems:
        return program
    if dim.name in explicit:
        size, problem = next(iter(problems.items()))
        raise CaptureError(
            f"dim {dim.name!r} is declared as {dim}, but {dim.name} = {size} does not work: {problem}",
            hint=f"give the dim min={max(problems) + 1}, or let the model do the same for all sizes",
        )
    notes = [Note(dim.name, f"cannot be {size}: {problem}") for size, problem in problems.items()]
    least = dim.min
    while least in problems:
        least += 1
    checks = program.checks
    if any(size >= least for size in problems):
        # 0 works and 1 does not.
        checks = (*checks, check_of(sympy.Ne(dim_symbol(dim.name), 1)))
    dims = tuple(replace(d, min=least) if d.name == dim.name else d for d in program.signature.dims)
    return replace(
        program,
        signature=replace(program.signature, dims=dims),
        checks=checks,
        notes=(*program.notes, *notes),
    )


# ---- one call -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    program: Program
    call: Call
    answer: Answer
    module: torch.nn.Module
    values: bool
    writes: bool

    def problem(self, sizes: Mapping[str, int]) -> str | None:
        """Why the program cannot be called with these sizes; None if it can."""
        cut = [
            _cut(value, spec, sizes)
            for value, spec in zip(_inputs(self.call), self.program.signature.inputs, strict=True)
        ]
        problem, failed = self._compared(cut)
        if not failed:
            return problem
        # An index may be too large for a smaller tensor; 0 is none of these.
        zeros = [v.zero_() if isinstance(v, torch.Tensor) and not v.is_floating_point() else v for v in _copied(cut)]
        again, failed = self._compared(zeros)
        return problem if failed else again

    def _compared(self, inputs: Sequence[Any]) -> tuple[str | None, bool]:
        """How the program differs from the model, and whether the model itself fails."""
        mine, theirs = _copied(inputs), _copied(inputs)
        mode: Any = contextlib.nullcontext()
        if not self.values:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            mine, theirs = (pytree.tree_map_only(torch.Tensor, mode.from_tensor, given) for given in (mine, theirs))
        try:
            with mode:
                expected = list(self.answer(*self._arguments(theirs)))
        except Exception as error:
            cause = error.__cause__ if isinstance(error, AotpackError) and error.__cause__ is not None else error
            text = str(cause).strip().partition("\n")[0]
            return f"the model fails: {type(cause).__name__}: {text}", True
        try:
            graph = self.program.runnable() if self.values else self.program.graph_module
            with torch.no_grad(), state_put_back(self.module) if self.values else mode:
                returned = _AsTraced(graph, mine).run(*mine)
        except _Otherwise as error:
            return str(error).partition("\n")[0], False
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            return f"what was captured fails: {type(error).__name__}: {text}", False
        return self._difference([*expected], [*returned], mine, theirs), False

    def _difference(
        self, expected: Sequence[Any], returned: Sequence[Any], mine: Sequence[Any], theirs: Sequence[Any]
    ) -> str | None:
        got = iter(zip(returned, self.program.signature.outputs, strict=True))
        values = self.values and not draws_random_numbers(self.program.graph_module)
        for leaf, wanted in zip(_leaves(self.program.signature.out_spec), expected, strict=True):
            if isinstance(leaf, ValueLeaf):
                if ValueLeaf(wanted) != leaf:
                    return f"the model returns {_shown(wanted)}, what was captured {leaf.value!r}"
                continue
            value, spec = next(got)
            if spec.number is not None:
                wanted = torch.tensor(wanted, dtype=value.dtype) if not isinstance(wanted, torch.Tensor) else wanted
            if not isinstance(wanted, torch.Tensor) or not _alike(value, wanted, values):
                text, other = _shown(wanted), _shown(value)
                return f"{spec.name} is {text}, in what was captured {'another' if text == other else other}"
        for spec, mutated, wanted in zip(self.program.signature.inputs, mine, theirs, strict=True):
            if self.writes and spec.mutated and not _alike(mutated, wanted, values):
                return f"input {spec.name!r} is written otherwise"
        return None

    def _arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves, tree = pytree.tree_flatten((self.call.args, self.call.kwargs))
        fresh = iter(inputs)
        taken = [
            next(fresh) if isinstance(v, torch.Tensor) or i in self.call.numbers else v for i, v in enumerate(leaves)
        ]
        args, kwargs = pytree.tree_unflatten(taken, tree)
        return args, kwargs


class _Otherwise(Exception):
    """A value has another size than the trace has."""


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
        return value if spec.dim is None else sizes[spec.dim]
    result = value.detach()
    for axis, element in enumerate(spec.shape):
        old, new = result.shape[axis], _resolved(element, sizes)
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
