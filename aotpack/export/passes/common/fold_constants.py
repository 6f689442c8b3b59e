"""Folds nodes that depend on constants only: casts, transpositions, lookups with constant indices.

Never folded: random operators, values that depend on symbolic sizes, state that the model writes, and values made of
nothing (`arange`, `zeros`), which are cheaper to compute than to load. What is folded takes at most `_GROWTH` times the
bytes of the constants that it replaces, small values aside: an archive does not grow by folding.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.export.ir.program import Program
from aotpack.export.ir.random_operators import is_random
from aotpack.export.ir.rewriter import Rewriter, is_dense
from aotpack.export.ir.slots import Slot, filled
from aotpack.export.passes.patterns.integer_ranges import keep_range
from aotpack.export.torch_compat.operators import OpOverload, operator_schema

_GROWTH = 1.0
_SMALL = 64 * 1024

aten = torch.ops.aten


def fold_constants(program: Program) -> Program:
    """Replaces constant subgraphs by constants, which are computed when the archive is packed."""
    rewriter = Rewriter(program)
    roots: dict[torch.fx.Node, tuple[torch.fx.Node, ...]] = {}
    for node in rewriter.graph.nodes:
        if rewriter.constant(node) is not None:
            roots[node] = (node,)
        elif _foldable(node) and all(source in roots for source in node.all_input_nodes):
            roots[node] = tuple(dict.fromkeys(r for source in node.all_input_nodes for r in roots[source]))
    # A constant that something else reads stays in the archive: what is made of it comes on top.
    credit: dict[torch.fx.Node, float] = {
        n: _bytes(n) for n in roots if n.op == "get_attr" and all(user in roots for user in n.users)
    }
    recipes: list[tuple[torch.fx.Node, _Steps]] = []
    for node in rewriter.graph.nodes:
        if node not in roots or node.op == "get_attr" or not isinstance(node.meta["val"], torch.Tensor):
            continue
        if all(user in roots for user in node.users):
            continue
        if not _afford(node, roots[node], credit):
            continue
        # Read off the graph while it is whole: a folded value may be a step towards another.
        recipes.append((node, _Steps.of(node, roots[node])))
    for node, recipe in recipes:
        folded = rewriter.derive(node.name, "folded", recipe, roots[node], node, exact=False)
        keep_range(folded, node)
        rewriter.report(node, f"{node.target} of {', '.join(str(root.target) for root in roots[node])}")
        rewriter.replace(node, folded)
    return rewriter.finish("fold-constants", f"folded {rewriter.changed} values")


def _afford(node: torch.fx.Node, roots: Sequence[torch.fx.Node], credit: dict[torch.fx.Node, float]) -> bool:
    """Whether the constants that go make room for the folded value; takes the room."""
    needed = _bytes(node) / _GROWTH
    if needed <= _SMALL:
        return True
    if sum(credit.get(root, 0) for root in roots) < needed:
        return False
    for root in roots:
        taken = min(needed, credit.get(root, 0))
        credit[root] = credit.get(root, 0) - taken
        needed -= taken
    return True


@dataclass(frozen=True)
class _Steps:
    """A recipe: calls of operators one after another. The result of the last one is made dense."""

    calls: tuple[tuple[Callable[..., Any], Any, Any], ...]

    @staticmethod
    def of(node: torch.fx.Node, roots: Sequence[torch.fx.Node]) -> _Steps:
        slots = {root: Slot(number) for number, root in enumerate(roots)}
        calls: list[tuple[Callable[..., Any], Any, Any]] = []

        def visit(current: torch.fx.Node) -> None:
            if current in slots:
                return
            for source in current.all_input_nodes:
                visit(source)
            args, kwargs = map_arg((current.args, current.kwargs), slots.__getitem__)  # type: ignore[arg-type]
            calls.append((_function(current), args, kwargs))
            slots[current] = Slot(len(slots))

        visit(node)
        return _Steps(tuple(calls))

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        values: list[Any] = list(tensors)
        for function, args, kwargs in self.calls:
            values.append(function(*filled(args, values), **filled(kwargs, values)))
        result: torch.Tensor = values[-1]
        return result if is_dense(result) else result.contiguous()


def _foldable(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    if operator_schema(node.target).is_mutable or is_random(node.target):
        return False
    # Batch norm and dropout in training mode, and operators whose result has data-dependent sizes, keep their place.
    if torch.Tag.data_dependent_output in node.target.tags or torch.Tag.dynamic_output_shape in node.target.tags:
        return False
    values = node.meta.get("val")
    tensors = values if isinstance(values, (tuple, list)) else [values]
    return all(isinstance(t, torch.Tensor) and not any(isinstance(s, torch.SymInt) for s in t.shape) for t in tensors)


def _function(node: torch.fx.Node) -> Callable[..., Any]:
    if not callable(node.target):
        raise TypeError(f"{node.name} calls {node.target}, which is not a function")
    return node.target


def _bytes(node: torch.fx.Node) -> int:
    value = node.meta["val"]
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
