"""The import of AOTAutograd's partitioners, without networkx: a tenth of a second, for graphs that only training needs.

torch imports networkx for annotations, and for functions that cut graphs with gradients in two. Here it is imported
when such a function runs.

Private interfaces touched (torch 2.11 to 2.13):
  torch._functorch.partitioners   the import
"""

from __future__ import annotations

import importlib
import sys
import types
from importlib.util import find_spec
from typing import Any

_NAME = "networkx"
_READERS = "torch._functorch"


class LateModule(types.ModuleType):
    """Stands for networkx in the modules that are imported meanwhile; everybody else gets the module itself.

    Attributes:
        open: whether these are being imported, and read names for annotations alone.
    """

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.open = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.open and str(sys._getframe(1).f_globals.get("__name__")).startswith(_READERS):
            return Any
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        return getattr(importlib.import_module(_NAME), name)


def load_partitioners() -> None:
    """Imports AOTAutograd's partitioners, if nothing has yet."""
    if _NAME in sys.modules or f"{_READERS}.partitioners" in sys.modules or find_spec(_NAME) is None:
        return
    late = LateModule()
    sys.modules[_NAME] = late
    try:
        importlib.import_module(f"{_READERS}.partitioners")
    finally:
        late.open = False
        if sys.modules.get(_NAME) is late:
            del sys.modules[_NAME]
