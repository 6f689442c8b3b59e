"""Calls that are activations which kernels apply to their results."""

from __future__ import annotations

from typing import Any

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
# By the names of their arguments, the smallest result and the largest.
_CLAMPS: dict[OpOverload, tuple[str | None, str | None]] = {
    aten.hardtanh.default: ("min_val", "max_val"),
    aten.hardtanh_.default: ("min_val", "max_val"),
    aten.clamp.default: ("min", "max"),
    aten.clamp_.default: ("min", "max"),
    aten.clamp_min.default: ("min", None),
    aten.clamp_min_.default: ("min", None),
    aten.clamp_max.default: (None, "max"),
    aten.clamp_max_.default: (None, "max"),
}
ACTIVATION_CALLS: tuple[OpOverload, ...] = (*_PLAIN, aten.gelu.default, *_CLAMPS)


def activation_name(node: torch.fx.Node, after: str = "none") -> str | None:
    """The name in `ops.ACTIVATIONS` of what a call of one of `ACTIVATION_CALLS` computes; with `after`, of what it
    computes of the result of that activation.
    """
    if after == "relu":
        limits = _limits(node)
        return "relu6" if limits is not None and limits[0] in (None, 0) and limits[1] == 6 else None
    if after != "none":
        return None
    if isinstance(node.target, OpOverload) and node.target in _PLAIN:
        return _PLAIN[node.target]
    arguments = bound_arguments(node)
    if node.target is aten.gelu.default:
        return "gelu_tanh" if arguments["approximate"] == "tanh" else "gelu"
    limits = _limits(node)
    if limits == (0, 6):
        return "relu6"
    return "relu" if limits == (0, None) else None


def _limits(node: torch.fx.Node) -> tuple[Any, Any] | None:
    """The numbers that a call keeps values between; None for other calls."""
    if not isinstance(node.target, OpOverload) or node.target not in _CLAMPS:
        return None
    arguments = bound_arguments(node)
    low, high = (None if name is None else arguments[name] for name in _CLAMPS[node.target])
    return low, high
