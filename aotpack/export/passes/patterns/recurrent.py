"""LSTMs and GRUs as layers, one for each direction."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.ops import recurrent

aten = torch.ops.aten

OPERATORS = (aten.lstm.input, aten.gru.input, recurrent.lstm, recurrent.gru)
_Nodes = Sequence[Any]


@dataclass(frozen=True)
class Layer:
    """One direction of a layer.

    Attributes:
        lstm: not a GRU.
        x: [steps, batch, features].
        weights: those of the inputs and of the state, [gates * hidden, features] and [gates * hidden, hidden].
        biases: the same, [gates * hidden] each; None where there are none.
        states: before the first step, [batch, hidden] each: h, and c of an LSTM. Of both directions, which are computed
            at once, [2, batch, hidden].
        hidden: how many units it has.
        reverse: whether the last step is computed first.
    """

    lstm: bool
    x: torch.fx.Node
    weights: _Nodes
    biases: _Nodes
    states: _Nodes
    hidden: int
    reverse: bool


def network(node: torch.fx.Node, dtypes: Sequence[torch.dtype]) -> dict[str, Any] | None:
    """The arguments of a node with one of `OPERATORS`, at inference, of one dtype and without projections."""
    arguments = bound_arguments(node)
    if arguments.get("train") and arguments["dropout"]:
        return None
    x, params = arguments["input"], arguments["params"]
    per_layer, directions = _layout(arguments)
    plain = len(params) == per_layer * directions * arguments["num_layers"]  # projections have a fifth weight
    if not plain or len(shape_of(x)) != 3 or {dtype_of(value) for value in (x, *params)} != {dtype_of(x)}:
        return None
    return arguments if dtype_of(x) in dtypes else None


def split(
    rewriter: Rewriter,
    node: torch.fx.Node,
    arguments: dict[str, Any],
    layer_of: Callable[[Layer], torch.fx.Node],
    both_of: Callable[[Layer, Layer], torch.fx.Node] | None = None,
) -> None:
    """Puts calls of layers, which `layer_of` inserts before the node, in its place.

    A call returns the results of the steps, [steps, batch, hidden], and the states after the last one. Where there is
    `both_of`, it inserts those of layers in two directions, which return [steps, batch, 2 * hidden].
    """
    results = _layers(rewriter, node, arguments, layer_of, both_of)
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise AssertionError("a tuple result is read by getitem alone")
        rewriter.replace(user, results[_index(user)])
    rewriter.graph.erase_node(node)


def _layout(arguments: dict[str, Any]) -> tuple[int, int]:
    """How many weights a direction of a layer has, and how many directions there are."""
    return 4 if arguments["has_biases"] else 2, 2 if arguments["bidirectional"] else 1


def _layers(
    rewriter: Rewriter,
    node: torch.fx.Node,
    arguments: dict[str, Any],
    layer_of: Callable[[Layer], torch.fx.Node],
    both_of: Callable[[Layer, Layer], torch.fx.Node] | None,
) -> list[torch.fx.Node]:
    lstm = node.target in (aten.lstm.input, recurrent.lstm)
    if "h0" in arguments:
        states = [arguments["h0"], arguments["c0"]] if lstm else [arguments["h0"]]
    else:
        states = arguments["hx"] if lstm else [arguments["hx"]]
    per_layer, directions = _layout(arguments)
    x = arguments["input"]
    if arguments["batch_first"]:
        x = rewriter.call(aten.transpose.int, (x, 0, 1), node)

    def described(index: int, before: _Nodes) -> Layer:
        weights = arguments["params"][index * per_layer : (index + 1) * per_layer]
        return Layer(
            lstm=lstm,
            x=x,
            weights=weights[:2],
            biases=weights[2:] or (None, None),
            states=before,
            hidden=shape_of(weights[1])[1],
            reverse=directions == 2 and index % 2 == 1,
        )

    finals: list[list[torch.fx.Node]] = [[] for _ in states]
    for first in range(0, arguments["num_layers"] * directions, directions):
        if directions == 2 and both_of is not None:
            before = [rewriter.call(aten.slice.Tensor, (state, 0, first, first + 2), node) for state in states]
            calls = [both_of(described(first, before), described(first + 1, before))]
        else:
            calls = [
                layer_of(
                    described(index, [rewriter.call(aten.select.int, (state, 0, index), node) for state in states])
                )
                for index in range(first, first + directions)
            ]
        outputs = [_item(rewriter, call, 0, node) for call in calls]
        for i, final in enumerate(finals):
            final += [_item(rewriter, call, 1 + i, node) for call in calls]
        x = outputs[0] if len(outputs) == 1 else rewriter.call(aten.cat.default, (outputs, 2), node)
    if arguments["batch_first"]:
        x = rewriter.call(aten.transpose.int, (x, 0, 1), node)
    joined = aten.cat.default if directions == 2 and both_of is not None else aten.stack.default
    return [x, *(rewriter.call(joined, (final,), node) for final in finals)]


def _index(getitem: torch.fx.Node) -> int:
    index = getitem.args[1]
    if not isinstance(index, int):
        raise TypeError(f"{getitem.name} reads item {index!r}, expected a number")
    return index


def _item(rewriter: Rewriter, call: torch.fx.Node, index: int, before: torch.fx.Node) -> torch.fx.Node:
    with rewriter.graph.inserting_before(before):
        item = rewriter.graph.call_function(operator.getitem, (call, index))
    item.meta["val"] = call.meta["val"][index]
    return item
