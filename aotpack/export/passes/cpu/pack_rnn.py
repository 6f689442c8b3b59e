"""Splits LSTM and GRU into the layer operator, one call per layer and direction."""

from __future__ import annotations

import operator
from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, bound_arguments, dtype_of, shape_of
from aotpack.export.ops import recurrent

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def pack_rnn(program: Program) -> Program:
    """Replaces LSTMs and GRUs with constant weights of fp32, bf16 or fp16."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(aten.lstm.input, aten.gru.input, recurrent.lstm, recurrent.gru):
        arguments = bound_arguments(node)
        if arguments.get("train") and arguments["dropout"]:
            continue
        weights = [rewriter.constant(parameter) for parameter in arguments["params"]]
        per_layer = 4 if arguments["has_biases"] else 2
        directions = 2 if arguments["bidirectional"] else 1
        plain = len(weights) == per_layer * directions * arguments["num_layers"]  # projections have a fifth weight
        known = [w for w in weights if w is not None]
        if len(known) != len(weights) or not plain or known[0].dtype not in _DTYPES:
            continue
        if dtype_of(arguments["input"]) != known[0].dtype or len(shape_of(arguments["input"])) != 3:
            continue
        rewriter.report(node, f"split into {arguments['num_layers']} x {directions} layers")
        results = _layers(rewriter, node, arguments, known, per_layer, directions)
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise AssertionError("a tuple result is read by getitem alone")
            rewriter.replace(user, results[_index(user)])
        rewriter.graph.erase_node(node)
    return rewriter.finish("pack-rnn", f"split {rewriter.changed} results of recurrent networks into layers")


def _layers(
    rewriter: Rewriter,
    node: torch.fx.Node,
    arguments: dict[str, Any],
    weights: list[torch.Tensor],
    per_layer: int,
    directions: int,
) -> list[torch.fx.Node]:
    lstm = node.target in (aten.lstm.input, recurrent.lstm)
    if "h0" in arguments:
        states = [arguments["h0"], arguments["c0"]] if lstm else [arguments["h0"]]
    else:
        states = arguments["hx"] if lstm else [arguments["hx"]]
    x = arguments["input"]
    if arguments["batch_first"]:
        x = rewriter.call(aten.transpose.int, (x, 0, 1), node)
    finals: list[list[torch.fx.Node]] = [[] for _ in states]
    for layer in range(arguments["num_layers"]):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            parameters = arguments["params"][index * per_layer : (index + 1) * per_layer]
            hidden = weights[index * per_layer + 1].shape[1]
            packed = [_packed(rewriter, node, parameter) for parameter in parameters[:2]]
            biases = list(parameters[2:]) if per_layer == 4 else [None, None]
            initial = [rewriter.call(aten.select.int, (state, 0, index), node) for state in states]
            op = ops.lstm_layer if lstm else ops.gru_layer
            call = rewriter.call(op, (x, *packed, *biases, *initial, hidden, direction == 1), node)
            parts = [_item(rewriter, call, i, node) for i in range(1 + len(states))]
            outputs.append(parts[0])
            for final, part in zip(finals, parts[1:], strict=True):
                final.append(part)
        x = outputs[0] if directions == 1 else rewriter.call(aten.cat.default, (outputs, 2), node)
    if arguments["batch_first"]:
        x = rewriter.call(aten.transpose.int, (x, 0, 1), node)
    return [x, *(rewriter.call(aten.stack.default, (final,), node) for final in finals)]


def _packed(rewriter: Rewriter, node: torch.fx.Node, parameter: torch.fx.Node) -> torch.fx.Node:
    return rewriter.derive(f"packed_{parameter.target}", "packed", ops.pack_linear, [parameter], node)


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
