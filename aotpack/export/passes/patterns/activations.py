"""Calls that are activations which kernels apply to their results."""

from __future__ import annotations

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.torch_compat.operators import OpOverload

aten = torch.ops.aten

_PLAIN = {
    aten.relu.default: "relu",
    aten.relu_.default: "relu",
    aten.silu.default: "silu",
    aten.silu_.default: "silu",
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
    aten.hardswish.default: "hardswish",
    aten.hardswish_.default: "hardswish",
    aten.hardsigmoid.default: "hardsigmoid",
    aten.relu6.default: "relu6",
}
_CLAMPS = (aten.hardtanh.default, aten.hardtanh_.default, aten.clamp.default)
ACTIVATION_CALLS: tuple[OpOverload, ...] = (*_PLAIN, aten.gelu.default, *_CLAMPS)


def activation_name(node: torch.fx.Node) -> str | None:
    """The name in `ops.ACTIVATIONS` of what a call of one of `ACTIVATION_CALLS` computes."""
    if isinstance(node.target, OpOverload) and node.target in _PLAIN:
        return _PLAIN[node.target]
    arguments = bound_arguments(node)
    if node.target is aten.gelu.default:
        return "gelu_tanh" if arguments["approximate"] == "tanh" else "gelu"
    if node.target is aten.clamp.default:
        limits = (arguments["min"], arguments["max"])
    else:
        limits = (arguments["min_val"], arguments["max_val"])
    if limits == (0, 6):
        return "relu6"
    return "relu" if limits == (0, None) else None
