"""LSTMs and GRUs become products and calls of this project's kernel."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of, shape_of
from aotpack.export.passes.patterns import recurrent
from aotpack.export.symbolic_shapes.hints import size_hint

aten = torch.ops.aten


def use_recurrent(program: Program) -> Program:
    """Replaces LSTMs and GRUs of a fixed number of steps by `aotpack::cuda_lstm_layer` and `cuda_gru_layer`."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import recurrent as operators

    rewriter = Rewriter(program)
    for node in rewriter.nodes(*recurrent.OPERATORS):
        arguments = recurrent.network(node, operators.DTYPES)
        if arguments is None:
            continue
        steps, rows = shape_of(arguments["input"])[:2]
        if arguments["batch_first"]:
            steps, rows = rows, steps
        # Of none, the last state is not among the results.
        if not isinstance(steps, int) or steps == 0:
            continue
        if not operators.supports(size_hint(rows), dtype_of(arguments["input"])):
            continue

        def layer_of(layer: recurrent.Layer, node: torch.fx.Node = node) -> torch.fx.Node:
            x = rewriter.call(aten.linear.default, (layer.x, layer.weights[0], layer.biases[0]), node)
            operator = operators.LSTM if layer.lstm else operators.GRU
            call = (x, layer.weights[1], layer.biases[1], *layer.states, layer.reverse)
            return rewriter.call(operator, call, node)

        rewriter.report(node, f"{arguments['num_layers']} x {1 + arguments['bidirectional']} layers by our kernel")
        recurrent.split(rewriter, node, arguments, layer_of)
    return rewriter.finish("use-recurrent", f"{rewriter.changed} results of recurrent networks by our kernel")
