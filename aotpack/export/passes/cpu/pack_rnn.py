"""Splits LSTM and GRU into the operators of layers, one call for each, with both directions at once."""

from __future__ import annotations

import torch

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.patterns import recurrent


def pack_rnn(program: Program) -> Program:
    """Replaces LSTMs and GRUs with constant weights of fp32, bf16 or fp16."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*recurrent.OPERATORS):
        arguments = recurrent.network(node, ops.KERNEL_DTYPES)
        if arguments is None or any(rewriter.constant(weight) is None for weight in arguments["params"]):
            continue

        def layer_of(layer: recurrent.Layer, node: torch.fx.Node = node) -> torch.fx.Node:
            packed = [_packed(rewriter, node, weight) for weight in layer.weights]
            operator = ops.lstm_layer if layer.lstm else ops.gru_layer
            call = (layer.x, *packed, *layer.biases, *layer.states, layer.hidden, layer.reverse)
            return rewriter.call(operator, call, node)

        def both_of(one: recurrent.Layer, other: recurrent.Layer, node: torch.fx.Node = node) -> torch.fx.Node:
            given = [
                part
                for layer in (one, other)
                for part in (*(_packed(rewriter, node, weight) for weight in layer.weights), *layer.biases)
            ]
            operator = ops.lstm_both if one.lstm else ops.gru_both
            return rewriter.call(operator, (one.x, *given, *one.states, one.hidden), node)

        rewriter.report(node, f"split into {arguments['num_layers']} x {1 + arguments['bidirectional']} layers")
        recurrent.split(rewriter, node, arguments, layer_of, both_of)
    return rewriter.finish("pack-rnn", f"split {rewriter.changed} results of recurrent networks into layers")


def _packed(rewriter: Rewriter, node: torch.fx.Node, parameter: torch.fx.Node) -> torch.fx.Node:
    return rewriter.derive(f"packed_{parameter.target}", "packed", ops.pack_linear, [parameter], node)
