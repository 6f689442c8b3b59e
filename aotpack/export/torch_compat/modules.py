"""The tensors of modules, by reference.

Private interfaces touched (torch 2.11 to 2.13):
  torch.nn.Module.{_parameters, _buffers}   assigning an attribute accepts no tensor in the place of a parameter
"""

from __future__ import annotations

import torch


def tensor_tables(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor | None], ...]:
    """The parameters and the buffers of a module itself, by name; what is changed in there is changed in the module."""
    tables: tuple[dict[str, torch.Tensor | None], ...] = (module._parameters, module._buffers)  # type: ignore[assignment]
    return tables
