"""Which half precisions a model computes with: modules have no code for the others."""

from __future__ import annotations

import torch

from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import all_nodes

_HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}


def used_halves(program: Program) -> frozenset[str]:
    """Which of "bf16" and "f16" tensors of the graph have."""
    values = [node.meta.get("val") for node in all_nodes(program.graph_module)]
    tensors = [t for value in values for t in (value if isinstance(value, (tuple, list)) else [value])]
    dtypes = {tensor.dtype for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return frozenset(name for dtype, name in _HALVES.items() if dtype in dtypes)
