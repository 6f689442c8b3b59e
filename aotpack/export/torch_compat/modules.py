"""The tensors of modules, by reference, and Python modules that are being imported.

Private interfaces touched (torch 2.11 to 2.13):
  torch.nn.Module.{_parameters, _buffers}   assigning an attribute accepts no tensor in the place of a parameter
"""

from __future__ import annotations

from typing import Any

import torch


def tensor_tables(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor | None], ...]:
    """The parameters and the buffers of a module itself, by name; what is changed in there is changed in the module."""
    tables: tuple[dict[str, torch.Tensor | None], ...] = (module._parameters, module._buffers)  # type: ignore[assignment]
    return tables


def is_loading(table: dict[str, Any]) -> bool:
    """Whether these are the globals of a Python module whose import has not ended.

    Private interface touched (Python 3.11 to 3.14): importlib.machinery.ModuleSpec._initializing
    """
    return bool(getattr(table.get("__spec__"), "_initializing", False))
