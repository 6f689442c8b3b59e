"""torch.export and AOTAutograd, beyond what their public functions offer.

Private interfaces touched (torch 2.11 to 2.13):
  torch.export._trace._export with pre_dispatch=False   torch.export.export without its choice of where to trace
  torch._functorch.aot_autograd.aot_export_module
  torch._C._functorch.is_functorch_wrapped_tensor
  ExportedProgram.{_graph_signature, _guards_code}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec


def export_below_autograd(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, *, dynamic_shapes: Any
) -> ExportedProgram:
    """What torch.export.export returns, traced below autograd."""
    from torch.export._trace import _export

    return _export(  # type: ignore[no-any-return]
        module, args, dict(kwargs) if kwargs else None, dynamic_shapes, strict=False, pre_dispatch=False
    )


def export_joint(
    module: torch.nn.Module, args: Any, *, loss: int, decompositions: Mapping[Any, Any]
) -> tuple[Any, Any]:
    """The graph of a forward and its backward, and AOTAutograd's signature of it."""
    from torch._functorch.aot_autograd import aot_export_module

    return aot_export_module(
        module, args, trace_joint=True, output_loss_index=loss, decompositions=dict(decompositions)
    )


def is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor exists only inside of a transform of torch.func, such as vmap."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def set_input_specs(program: ExportedProgram, specs: Sequence[InputSpec]) -> None:
    """Changes what the placeholders of a program stand for, in place."""
    program._graph_signature = replace(program.graph_signature, input_specs=list(specs))


def guards_code(program: ExportedProgram) -> Sequence[str]:
    """The guards of a loaded program as Python expressions of its arguments `L["name"]`."""
    return getattr(program, "_guards_code", None) or ()
