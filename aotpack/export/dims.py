"""Dynamic dims: the user's names for torch.export's symbols, and sizes as expressions of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from aotpack.errors import CaptureError
from aotpack.export.structure import key_text
from aotpack.spec import Dim, DimRef, Expr, ShapeElement


def expression(size: Any) -> sympy.Expr:
    """The sympy expression behind an int or SymInt."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


class DimTable:
    """Names and ranges of the symbols in a captured program."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        self._ranges = ranges
        self._names: dict[sympy.Symbol, str] = {}

    def name_inputs(
        self,
        inputs: Sequence[tuple[str, torch.Tensor]],
        user_names: Sequence[Mapping[int, str]],
    ) -> None:
        """Gives every symbol in the inputs' sizes a name: the user's, else one made of the input's."""
        for (_, value), names in zip(inputs, user_names, strict=True):
            for axis, name in names.items():
                expr = expression(value.shape[axis])
                if isinstance(expr, sympy.Symbol):
                    self._names.setdefault(expr, name)
        taken = set(self._names.values())
        for name, value in inputs:
            for axis, size in enumerate(value.shape):
                for symbol in sorted(expression(size).free_symbols, key=str):
                    if symbol not in self._names:
                        fresh = re.sub(r"\W", "_", f"{name}_{axis}")
                        while fresh in taken:
                            fresh += "_"
                        taken.add(fresh)
                        self._names[symbol] = fresh

    def dims(self) -> tuple[Dim, ...]:
        """All named dims, in order of first use."""
        result = []
        for symbol, name in self._names.items():
            limits = self._ranges.get(symbol)
            low = max(0, _bound(limits.lower, 0) or 0) if limits is not None else 0
            high = _bound(limits.upper, None) if limits is not None else None
            result.append(Dim(name, low, high))
        return tuple(result)

    def size(self, size: Any, *, output: bool, where: str) -> ShapeElement:
        """A size for the manifest: an int, mul * dim + add, or (outputs only) an expression for people."""
        expr = sympy.expand(expression(size))
        if expr.is_Integer:
            return int(expr)
        symbols = sorted(expr.free_symbols, key=str)
        if len(symbols) == 1 and symbols[0] in self._names:
            polynomial = sympy.Poly(expr, symbols[0]) if expr.is_polynomial(symbols[0]) else None
            if polynomial is not None and polynomial.degree() == 1:
                mul, add = polynomial.all_coeffs()
                if mul.is_Integer and add.is_Integer:
                    return DimRef(self._names[symbols[0]], int(mul), int(add))
        if output:
            return Expr(str(expr.subs({symbol: sympy.Symbol(name) for symbol, name in self._names.items()})))
        raise CaptureError(
            f"{where}: the size {expr} is not of the form a*dim + b",
            hint="give this dim a name of its own, or make it static",
        )


def _bound(value: Any, default: int | None) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return default


def user_dim_names(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> list[dict[int, str]]:
    """For every leaf of `(args, kwargs)` in pytree order: axis → name of the user's `Dim` there."""
    leaves = [path for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]]
    if dynamic_shapes is None:
        return [{} for _ in leaves]
    by_name = _argument_names(function, args)
    return [_leaf_dims(dynamic_shapes, path, by_name) for path in leaves]


def _argument_names(function: Callable[..., Any], args: tuple[Any, ...]) -> list[tuple[str, int | None]]:
    """For each positional argument: the parameter's name, and the index inside it when the parameter is `*args`."""
    names: list[tuple[str, int | None]] = []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [(f"arg{i}", None) for i in range(len(args))]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [(parameter.name, i) for i in range(len(args) - len(names))]
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            names.append((parameter.name, None))
    return names


def _leaf_dims(dynamic_shapes: Any, path: tuple[Any, ...], by_name: list[tuple[str, int | None]]) -> dict[int, str]:
    in_kwargs = getattr(path[0], "idx", 0) == 1
    node = dynamic_shapes
    steps = list(path[1:])
    if isinstance(node, dict):
        if in_kwargs:
            node = node.get(key_text(steps.pop(0)))
        else:
            name, inner = by_name[steps.pop(0).idx]
            node = node.get(name)
            if inner is not None:
                node = _step(node, inner, str(inner))
    elif in_kwargs:
        return {}
    for key in steps:
        node = _step(node, getattr(key, "idx", None), key_text(key))
    return _axis_names(node)


def _step(node: Any, index: int | None, text: str) -> Any:
    if isinstance(node, dict):
        return node.get(text, node.get(index))
    if isinstance(node, (list, tuple)) and index is not None and index < len(node):
        return node[index]
    return None


def _axis_names(node: Any) -> dict[int, str]:
    if isinstance(node, dict):
        items = list(node.items())
    elif isinstance(node, (list, tuple)):
        items = list(enumerate(node))
    else:
        return {}
    names = {}
    for axis, dim in items:
        name = getattr(dim, "__name__", None)
        # Derived dims ("2*batch") are expressions of their root, which has the name.
        if isinstance(axis, int) and isinstance(name, str) and name.isidentifier() and not isinstance(dim, int):
            names[axis] = name
    return names
