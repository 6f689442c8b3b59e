"""Attention with gradients, as torch traces it below autograd."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import torch
import torch.fx

from aotpack.export.ir.rewriter import bound_arguments, shape_of

aten = torch.ops.aten

FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_ALIASES = (aten.detach.default, aten.alias.default)


@dataclass(frozen=True)
class AttentionCall:
    """What forward and backward share: [batch, heads, length, dim] of queries, keys and values."""

    q: torch.fx.Node
    k: torch.fx.Node
    v: torch.fx.Node
    mask: torch.fx.Node | None
    is_causal: bool
    scale: float

    @property
    def repeats(self) -> int:
        """How many heads of queries read a head of the keys."""
        return int(shape_of(self.q)[1]) // int(shape_of(self.k)[1])


def attention_call(node: torch.fx.Node) -> AttentionCall | None:
    """What a call of `FORWARD` or `BACKWARD` computes.

    Returns:
        None for an attention with dropout, with dynamic numbers or sizes of heads, or whose scale is not known.
    """
    arguments = bound_arguments(node)
    q, k, v = arguments["query"], arguments["key"], arguments["value"]
    heads, key_heads, dim = shape_of(q)[1], shape_of(k)[1], shape_of(q)[3]
    if arguments["dropout_p"] != 0 or not all(isinstance(size, int) for size in (heads, key_heads, dim)):
        return None
    if 0 in (key_heads, dim) or heads % key_heads or any(user.target is not operator.getitem for user in node.users):
        return None
    scale = arguments["scale"]
    if scale is None:
        scale = 1.0 / math.sqrt(dim)
    if not isinstance(scale, (int, float)):
        return None
    return AttentionCall(q, k, v, arguments["attn_mask"], arguments["is_causal"], float(scale))


def forward_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """The call of `FORWARD` whose results a call of `BACKWARD` reads; None where they come from elsewhere."""
    arguments = bound_arguments(node)
    results = [_source(arguments[name]) for name in ("out", "logsumexp")]
    if any(result.target is not operator.getitem or result.args[1] != i for i, result in enumerate(results)):
        return None
    first, second = (result.args[0] for result in results)
    return first if first is second and isinstance(first, torch.fx.Node) and first.target is FORWARD else None


def _source(node: torch.fx.Node) -> torch.fx.Node:
    while node.target in _ALIASES and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node
