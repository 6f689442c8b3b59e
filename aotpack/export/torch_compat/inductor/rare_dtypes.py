"""Lets TorchInductor move elements of dtypes that torch does not promote: uint16, uint32, uint64 and those of float8.

Of a node of a kernel without a dtype of its own, such as `where`, TorchInductor takes the promotion of all that goes
into it, masks too. Where torch has no promotion, the dtype is the one of what is not a mask.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.common.DataTypePropagation.deduce_node_dtype_by_inputs
  torch._inductor.codegen.common.OptimizationContext.key, and the dtype that is kept under it in a node's meta
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from aotpack.export.torch_compat.patches import replaced


@contextlib.contextmanager
def rare_dtypes_allowed() -> Iterator[None]:
    """While active, kernels may choose between elements of such a dtype by a mask."""
    from torch._inductor.codegen.common import DataTypePropagation, OptimizationContext

    original: Any = DataTypePropagation.deduce_node_dtype_by_inputs

    @functools.wraps(original)
    def deduce(self: Any, node: torch.fx.Node) -> Any:
        try:
            return original(self, node)
        except RuntimeError:
            known = (below.meta.get(OptimizationContext.key) for below in node.all_input_nodes)
            dtypes = {context.dtype for context in known if context is not None} - {torch.bool, None}
            if len(dtypes) != 1:
                raise
            return dtypes.pop()

    with replaced(DataTypePropagation, "deduce_node_dtype_by_inputs", deduce):
        yield
