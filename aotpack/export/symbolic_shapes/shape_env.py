"""What torch assumed of the symbols of a captured program, read from its shape environment.

Interfaces of torch used, none of them documented (2.11 to 2.13):
  SymInt.node, and of a node: expr, hint, shape_env
  ShapeEnv.{guards, replacements, replacements_slocs, var_to_range,
    var_to_range_sloc, var_to_sources}
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx

from aotpack.export.diagnostics import model_lines
from aotpack.export.diagnostics.recorded_lines import lines_recorded
from aotpack.export.torch_compat import places, pytree
from aotpack.export.torch_compat.current_node import lowered_stack_trace
from aotpack.export.torch_compat.fake_tensors import FakeTensor, unset_fake_temporarily
from aotpack.export.torch_compat.patches import applied, returning
from aotpack.export.torch_compat.symbolic_shapes import (
    ShapeEnv,
    SymT,
    ValueRanges,
    bound_sympy,
    first_expression,
    followed_stack,
    int_oo,
    sizes_oblivious,
)

_TORCH = os.path.dirname(torch.__file__) + os.sep
_LAYERS = os.path.join(_TORCH, "nn", "")
_COMPILER = os.path.join(_TORCH, "_inductor", "")
# Where operators are computed on fake tensors, and made of others.
_OPERATORS = (
    _LAYERS,
    *(_TORCH + name for name in ("_subclasses", "_refs", "_prims", "_decomp", "_meta_registrations", "functional.py")),
)


@dataclass(frozen=True)
class Origin:
    """Where an assumption comes from.

    Attributes:
        line: the line of the model that needs it; None where it is not known.
        inside: an operator asked, not the model's own code: often for a layout that makes no difference to results.
    """

    line: str | None = None
    inside: bool = False

    def __str__(self) -> str:
        return "" if self.line is None else f"\n  at {self.line}"


_UNKNOWN = Origin()


@dataclass(frozen=True)
class Assumption:
    """A condition that torch relies on, over symbols that stand for themselves."""

    expr: sympy.Basic
    origin: Origin = _UNKNOWN


def expression(size: Any) -> sympy.Expr:
    """The sympy expression behind an int, a bool or a symbolic number, with all that torch has learned meanwhile."""
    if isinstance(size, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return size.node.expr
    return sympy.sympify(size)


_LARGE = sympy.Integer((1 << 20) + 7)


def large_value(size: Any) -> int:
    """The value of a size where every symbol is large: strides of dense tensors compare as they do for all sizes of at
    least 2. Symbols of the example's 1 and those that come out of the data have no value that would do.
    """
    expr = expression(size)
    value = expr.xreplace(dict.fromkeys(expr.free_symbols, _LARGE))
    return int(value) if value.is_number and value.is_finite else 0


def first_symbol(size: Any) -> sympy.Symbol | None:
    """The symbol that a size of an input was given when tracing began; None for a constant."""
    raw = first_expression(size)
    return raw if isinstance(raw, sympy.Symbol) else None


def environment(values: Iterable[Any]) -> ShapeEnv | None:
    """The environment that the symbolic sizes of fake tensors, or symbolic numbers, belong to; None without any."""
    for value in values:
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                found: ShapeEnv | None = size.node.shape_env
                if found is not None:
                    return found
    return None


def graph_environment(graph: torch.fx.Graph) -> ShapeEnv | None:
    """The environment of a graph's fake tensors."""
    return environment(node.meta["val"] for node in graph.nodes if node.meta.get("val") is not None)


def is_input(env: ShapeEnv, symbol: sympy.Symbol) -> bool:
    """Whether a symbol is a size (or number) of an input, not one that comes out of the data."""
    return bool(env.var_to_sources.get(symbol))


def resolved(env: ShapeEnv, expr: sympy.Basic) -> sympy.Basic:
    """The expression with symbols replaced by what torch found them equal to."""
    for _ in range(len(env.replacements) + 1):
        new = expr.xreplace(env.replacements)
        if new == expr:
            return new
        expr = new
    return expr


# How many guards of an environment have become conditions that calls are checked for.
_MARKED: weakref.WeakKeyDictionary[ShapeEnv, int] = weakref.WeakKeyDictionary()


def guards(env: ShapeEnv) -> list[Assumption]:
    """The conditions under which the trace is right, in the order in which torch found them."""
    return _assumptions(env, 0)


def new_guards(env: ShapeEnv) -> list[Assumption]:
    """The guards that were added after the last `mark_guards`."""
    return _assumptions(env, _MARKED.get(env, 0))


def mark_guards(env: ShapeEnv) -> None:
    """Declares that all guards so far have become conditions that calls are checked for."""
    _MARKED[env] = len(env.guards)


def _assumptions(env: ShapeEnv, start: int) -> list[Assumption]:
    return [Assumption(resolved(env, guard.expr), _origin(guard.sloc)) for guard in env.guards[start:]]


def replacement_line(env: ShapeEnv, symbol: sympy.Symbol) -> str | None:
    """The line of the model that made a symbol equal to something else."""
    return _origin(env.replacements_slocs.get(symbol)).line


def bounds(env: ShapeEnv, symbol: sympy.Symbol) -> tuple[int | None, int | None]:
    """The range of a symbol; None where there is no bound."""
    found = env.var_to_range.get(symbol)
    return (None, None) if found is None else (finite(found.lower), finite(found.upper))


def set_bounds(env: ShapeEnv, symbol: sympy.Symbol, low: int, high: int | None) -> None:
    """Tells torch that the symbol lies between these bounds in every call."""
    env.var_to_range[symbol] = ValueRanges(low, int_oo if high is None else high)


def bound_origins(env: ShapeEnv, symbol: sympy.Symbol) -> tuple[Origin, Origin]:
    """What gave the bounds of a symbol."""
    found = env.var_to_range_sloc.get(symbol)
    return (_UNKNOWN, _UNKNOWN) if found is None else (_origin(found.lower), _origin(found.upper))


@contextlib.contextmanager
def sizes_from_zero() -> Iterator[None]:
    """While active, torch does not take for granted that dynamic sizes are neither 0 nor 1.

    Nor do choices that make no difference to results become guards: which of its convolutions torch would run, and with
    which layout of the result, is chosen by the sizes of the example.
    """
    with (
        sizes_oblivious(),
        applied(
            {
                places.MAKE_SYMBOL: _nonnegative,
                # Asked of what `copy_` writes to; eager has refused those in the example call, and the answer would be
                # guards.
                places.INTERNAL_OVERLAP: returning(0),
                places.CONV_BACKEND: _by_example,
                places.CONV_MEMORY_FORMAT: _by_example,
            }
        ),
    ):
        yield


def _nonnegative(original: Any) -> Any:
    def make_symbol(prefix: Any, index: int, **assumptions: Any) -> sympy.Symbol:
        if prefix is SymT.SIZE and assumptions.get("positive"):
            assumptions.pop("positive")
            assumptions["nonnegative"] = True
        symbol: sympy.Symbol = original(prefix, index, **assumptions)
        return symbol

    return make_symbol


def _by_example(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function on tensors of the sizes of the example; as it is where these are not known."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            leaves, tree = pytree.tree_flatten((args, kwargs))
            found = [_of_example(leaf) for leaf in leaves]
        if any(value is None and leaf is not None for value, leaf in zip(found, leaves, strict=True)):
            return original(*args, **kwargs)
        args, kwargs = pytree.tree_unflatten(found, tree)
        with unset_fake_temporarily():
            return original(*args, **kwargs)

    return call


def _of_example(value: Any) -> Any:
    """The value in the example call; tensors have memory that is never touched. None where it has no value."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, FakeTensor):
        return value
    sizes, strides = [_of_example(size) for size in value.shape], [_of_example(step) for step in value.stride()]
    if None in sizes or None in strides:
        return None
    # On the CPU: torch may be built without the device.
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="cpu")


@contextlib.contextmanager
def unsolved_relations_allowed() -> Iterator[None]:
    """While active, torch.export need not solve the relations of sizes, which it does for the messages of its errors.

    What sizes have to satisfy is read from its guards.
    """
    with applied({places.CONSTRAINTS_SOLVED: _as_far_as_possible}):
        yield


def _as_far_as_possible(original: Callable[..., Any]) -> Any:
    def solve(constraints: Any) -> None:
        # sympy has no solution for some roundings of quotients.
        with contextlib.suppress(NotImplementedError):
            original(constraints)

    return solve


@contextlib.contextmanager
def usual_sizes() -> Iterator[None]:
    """While active, questions that have one answer whenever no dynamic size is 0 or 1 get that answer.

    They are about layouts, in which such sizes have no part, so they become no guards. An example whose batch is 1
    would give the other answer.
    """
    with applied({places.EVALUATE: _usually}):
        yield


def _usually(original: Callable[..., Any]) -> Callable[..., Any]:
    """The method that answers a question about sizes, as it does for sizes of two and more."""

    def evaluate_expr(env: Any, orig_expr: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
        expr = env.replace(orig_expr)
        if isinstance(expr, (sympy.logic.boolalg.Boolean, sympy.Rel)) and expr.free_symbols:
            known = {symbol: env.var_to_range.get(symbol) for symbol in expr.free_symbols}
            if all(is_input(env, symbol) and found is not None and found.upper >= 2 for symbol, found in known.items()):
                ranges = {symbol: ValueRanges(max(found.lower, 2), found.upper) for symbol, found in known.items()}
                usual = bound_sympy(expr, ranges)
                if usual.is_singleton():
                    return usual.lower
        return original(env, orig_expr, hint, *args, **kwargs)

    return evaluate_expr


def value_range(expr: sympy.Basic, ranges: Mapping[sympy.Symbol, tuple[int | None, int | None]]) -> tuple[Any, Any]:
    """Bounds of an expression whose symbols lie in `ranges`: sympy numbers, or infinities of torch's.

    None, None where torch knows no bounds.
    """
    given = {
        symbol: ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)
        for symbol, (low, high) in ranges.items()
    }
    try:
        found = bound_sympy(expr, given)
    except Exception:  # It knows only what it was made for.
        return None, None
    return found.lower, found.upper


@contextlib.contextmanager
def lines_of_the_model() -> Iterator[None]:
    """While active, each assumption and each node is kept with the line of the model that is running."""
    with applied({places.GUARD_LINE: _located}), lines_recorded():
        yield


def _located(original: Any) -> Any:
    def get_sloc(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        return type(found)(found.framework_loc, _asking(found.maybe_user_loc))

    return get_sloc


class _Where(str):
    """Where an assumption comes from, "" if that is not known; `inside`: see `Assumption`."""

    inside: bool = False


def _asking(known: str | None) -> _Where:
    """`model.py:12, in forward: y = x.view(-1, 8)`: the innermost frame outside torch and this package."""
    frame: types.FrameType | None = sys._getframe(2)
    layer, in_python, in_operator, in_compiler = "", False, False, False
    if known:
        # Dynamo follows code without running it. Its own words cut paths short.
        followed = model_lines.of_summary(followed_stack())
        known = None if followed is None else followed.full
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(model_lines.TRACERS):
            # Frames above it belong to the caller of the trace, not to the model.
            break
        if path.startswith(_TORCH):
            # Code in Python asks by bool(), int() and the like; operators in C++ ask the symbols themselves.
            in_python = in_python or path == torch.__file__
            in_operator = in_operator or path.startswith(_OPERATORS)
            if not layer and path.startswith(_LAYERS):
                layer = f"torch/{path.removeprefix(_TORCH)}:{frame.f_lineno}, in {frame.f_code.co_name}"
            in_compiler = in_compiler or (path.startswith(_COMPILER) and not in_operator)
        elif (line := model_lines.of_frame(frame)) is not None:
            known = line.full
            break
        frame = frame.f_back
    if in_compiler and (trace := lowered_stack_trace()) and (lowered := model_lines.of_trace(trace)):
        known = lowered.full
    where = _Where(known or layer)
    where.inside = not in_compiler and (in_operator or not in_python)
    return where


def _origin(sloc: Any) -> Origin:
    where = None if sloc is None else sloc.maybe_user_loc
    return Origin(str(where) if where else None, isinstance(where, _Where) and where.inside)


def finite(bound: Any) -> int | None:
    """A bound as an int; None for an infinity."""
    return int(bound) if getattr(bound, "is_Integer", False) or isinstance(bound, int) else None
