"""C functions of operators that TorchInductor calls in later versions of torch only: here it does in earlier ones too.

Private interface touched (torch 2.11 to 2.13):
  torchgen.aoti.fallback_ops.inductor_fallback_ops   names of operators that have a C function
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

_SINCE_2_13 = ("aten.grid_sampler_3d.default", "aten.grid_sampler_3d_backward.default")


@contextlib.contextmanager
def shims_of_later_versions() -> Iterator[None]:
    """While active, generated code calls these operators by their C functions in every version."""
    known: Any = importlib.import_module("torchgen.aoti.fallback_ops").inductor_fallback_ops
    missing: dict[str, Any] = {name: {} for name in _SINCE_2_13 if name not in known}
    with mock.patch.dict(known, missing):
        yield
