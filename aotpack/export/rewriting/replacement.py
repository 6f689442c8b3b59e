"""What takes the place of a match: a function of the values there, traced in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from aotpack.errors import PassError
from aotpack.export.custom_ops.inlining import custom_operators_inlined
from aotpack.export.diagnostics.internal_errors import callers_own
from aotpack.export.ir.rewriter import PLACE, Rewriter, schema_of
from aotpack.export.overrides import functions_overridden
from aotpack.export.rewriting.pattern import Found
from aotpack.export.symbolic_shapes.dims import expression
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher
from aotpack.export.torch_compat.symbolic_shapes import make_fx


def call_arguments(function: Callable[..., Any], found: Found) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for a function at a match: arguments of an operator that are at their defaults are left out where
    the function has no parameter for them.

    Raises:
        PassError: the function has no parameter for an argument that is not at its default.
    """
    positional = [value for name, value in found.values.items() if name not in found.keywords]
    keywords = {name: found.values[name] for name in found.values if name in found.keywords}
    if not found.of_operator:
        return positional, keywords
    arguments = schema_of(found.output).arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
    names = [name for name in found.values if name not in found.keywords]
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function of C, such as torch.tanh
        while positional and _is_default(names[len(positional) - 1], positional[-1], defaults):
            positional.pop()
        return positional, {name: value for name, value in keywords.items() if not _is_default(name, value, defaults)}
    while True:
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            spare = next((name for name in keywords if _is_default(name, keywords[name], defaults)), None)
            if spare is not None and not _takes(signature, spare):
                del keywords[spare]
            elif positional and _is_default(names[len(positional) - 1], positional[-1], defaults):
                positional.pop()
            else:
                raise PassError(
                    f"the call of {found.output.target} has arguments that the replacement does not take: "
                    f"{', '.join(found.values)}",
                    hint="give the replacement the parameters of the operator, or a condition (`where`)",
                ) from None
        else:
            return positional, keywords


def insert(editor: Rewriter, found: Found, function: Callable[..., Any]) -> list[Any]:
    """Calls of what `function` computes, in front of the output of a match; the nodes of its results.

    Raises:
        PassError: results have other dtypes, shapes or devices than what they replace, or are no tensors.
    """
    args, kwargs = call_arguments(function, found)
    graph = _traced(editor, function, args, kwargs)
    nodes = _copied(editor, graph, found.output, _nodes_in((args, kwargs)))
    results: Any = graph.output_node().args[0]
    old = found.output.meta["val"]
    expected: Sequence[Any] = old if isinstance(old, (tuple, list)) else (old,)
    given = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(given) != len(expected) or isinstance(results, (tuple, list)) != isinstance(old, (tuple, list)):
        raise PassError(f"the replacement returns {len(given)} values, but the operator has {len(expected)} results")
    made = [nodes.get(result) if isinstance(result, torch.fx.Node) else None for result in given]
    for node, value in zip(made, expected, strict=True):
        _check(node, value)
    return made


def _traced(editor: Rewriter, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> torch.fx.Graph:
    """The graph of the function, over the distinct nodes among its arguments."""
    nodes = _nodes_in((args, kwargs))

    def run(*values: Any) -> Any:
        known = dict(zip(nodes, values, strict=True))
        with callers_own():
            return function(*map_arg(tuple(args), lambda n: known[n]), **map_arg(kwargs, lambda n: known[n]))

    values = [node.meta["val"] for node in nodes]
    with torch.no_grad(), enable_python_dispatcher(), functions_overridden(), custom_operators_inlined(), editor.mode:
        traced = make_fx(run, pre_dispatch=True)(*values)
    traced.graph.eliminate_dead_code()
    if traced.graph.find_nodes(op="get_attr"):
        raise PassError(
            "the replacement contains a tensor or a function of its own",
            hint="use numbers, or create the tensor there: torch.full, torch.arange",
        )
    graph: torch.fx.Graph = traced.graph
    return graph


def _copied(
    editor: Rewriter, graph: torch.fx.Graph, before: torch.fx.Node, arguments: Sequence[torch.fx.Node]
) -> dict[torch.fx.Node, torch.fx.Node]:
    """The calls of a graph in front of a node, by the nodes that they are copies of."""
    nodes = dict(zip(graph.find_nodes(op="placeholder"), arguments, strict=True))
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        with editor.graph.inserting_before(before):
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: nodes[n])
            copy = editor.graph.call_function(node.target, args, kwargs)
        copy.meta["val"] = node.meta["val"]
        copy.meta.update({key: before.meta[key] for key in PLACE if key in before.meta})
        nodes[node] = copy
    return nodes


def _check(node: torch.fx.Node | None, expected: Any) -> None:
    if not isinstance(expected, torch.Tensor):
        return
    value = None if node is None else node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise PassError("the replacement returns something that is not a tensor of the program")
    if value.dtype != expected.dtype:
        raise PassError(
            f"the replacement changes the dtype from {expected.dtype} to {value.dtype}",
            hint=f"return result.to({expected.dtype})",
        )
    sizes = [tuple(map(expression, each.shape)) for each in (expected, value)]
    if sizes[0] != sizes[1]:
        raise PassError(
            f"the replacement changes the shape from {list(map(str, sizes[0]))} to {list(map(str, sizes[1]))}"
        )
    if value.device != expected.device:
        raise PassError(f"the replacement moves the result from {expected.device} to {value.device}")


def _nodes_in(value: Any) -> list[torch.fx.Node]:
    found: dict[torch.fx.Node, None] = {}
    map_arg(value, lambda node: found.setdefault(node))
    return list(found)


def _is_default(name: str, value: Any, defaults: dict[str, Any]) -> bool:
    return name in defaults and not isinstance(value, torch.fx.Node) and defaults[name] == value


def _takes(signature: inspect.Signature, name: str) -> bool:
    kinds = {each.kind for each in signature.parameters.values()}
    return name in signature.parameters or inspect.Parameter.VAR_KEYWORD in kinds
