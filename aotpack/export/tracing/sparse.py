"""Sparse tensors are unsupported and reported by name: an archive's tensors have sizes and strides."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from aotpack.errors import CaptureError
from aotpack.export.torch_compat import pytree

_HINT = "convert it with .to_dense(), or leave that part outside of the archive"


def refuse_sparse_inputs(module: torch.nn.Module, example: Any) -> None:
    """Refuses models and example calls with sparse tensors.

    Raises:
        CaptureError: a parameter, buffer or input is sparse.
    """
    for tensor in [*pytree.tree_leaves(example), *module.parameters(), *module.buffers()]:
        if isinstance(tensor, torch.Tensor) and tensor.layout != torch.strided:
            raise CaptureError(
                f"a tensor of the model or its example inputs is sparse ({tensor.layout}), which is not supported",
                hint=_HINT,
            )


def refuse_sparse_values(exported: ExportedProgram) -> None:
    """Refuses programs in which an operator gives a sparse tensor.

    Raises:
        CaptureError: naming the operator.
    """
    for node in exported.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                raise CaptureError(
                    f"{node.target} returns a sparse tensor ({value.layout}), which archives do not support", hint=_HINT
                )
