"""The tensors of modules, by reference, and Python modules that are being imported.

Private interfaces touched (torch 2.11 to 2.13):
  torch.nn.Module.{_parameters, _buffers}   assigning an attribute accepts no tensor in the place of a parameter
  torch.nn.Module._modules                  the same for children; a module that is in two places is one child there
  torch.nn.Module._non_persistent_buffers_set
"""

from __future__ import annotations

import copy
from typing import Any

import torch


def tensor_tables(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor | None], ...]:
    """The parameters and the buffers of a module itself, by name; what is changed in there is changed in the module."""
    tables: tuple[dict[str, torch.Tensor | None], ...] = (module._parameters, module._buffers)  # type: ignore[assignment]
    return tables


def child_table(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """The children of a module by name; what is changed in there is changed in the module."""
    return module._modules


def put_over(module: torch.nn.Module, other: torch.nn.Module, **children: torch.nn.Module) -> None:
    """Gives a module the parameters, buffers and children of `other`, and these children beside them.

    The tables of parameters and buffers are those of `other`: what is set in one is set in both.
    """
    for table in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
        module.__dict__[table] = other.__dict__[table]
    module.__dict__["_modules"] = {**other._modules, **children}


def copied_module(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with tables of its own over the same tensors and children, and the same other attributes."""
    other = copy.copy(module)
    own = {table: dict(module.__dict__[table]) for table in ("_parameters", "_buffers", "_modules")}
    other.__dict__ = {**module.__dict__, **own}
    return other


def is_loading(table: dict[str, Any]) -> bool:
    """Whether these are the globals of a Python module whose import has not ended.

    Private interface touched (Python 3.11 to 3.14): importlib.machinery.ModuleSpec._initializing
    """
    return bool(getattr(table.get("__spec__"), "_initializing", False))
