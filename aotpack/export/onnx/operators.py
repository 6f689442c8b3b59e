"""All operators: importing this module fills the table."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from aotpack.export.onnx import ops

# A file per family; those that only serve others define none.
FAMILIES = tuple(import_module(f"{ops.__name__}.{module.name}") for module in iter_modules(ops.__path__))


def register() -> None:
    """Does nothing but make sure that this module, and so every family, is imported."""
