"""Checks without tokens.

torch 2.13 threads `aten._linalg_check_errors` through traces by tokens, which neither decompositions nor archives have.
That the operator is not dropped is seen to by `torch.fx.node.has_side_effect` (aotpack/export/ops/linalg.py).

Private interfaces touched (torch 2.11 to 2.13):
  torch._library.simple_registry.singleton   its entry for the operator, whose `effect` holds what kind of one it is
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def checks_without_tokens() -> Iterator[None]:
    """While active, `aten._linalg_check_errors` is traced like any other operator."""
    from torch._library.simple_registry import singleton

    holder: Any = getattr(singleton.find("aten::_linalg_check_errors"), "effect", None)
    with contextlib.nullcontext() if holder is None else mock.patch.object(holder, "_effect", None):
        yield
