"""Checks without tokens.

torch 2.13 threads `aten._linalg_check_errors` through traces by tokens, which neither decompositions nor archives have.
That the operator is not dropped is seen to by `torch.fx.node.has_side_effect` (aotpack/export/ops/linalg.py).

Private interfaces touched (torch 2.13):
  torch._library.effects.EffectHolder.{effect, qualname}   what kind of effect an operator has
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from aotpack.export.torch_compat.patches import applied

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def checks_without_tokens() -> contextlib.AbstractContextManager[None]:
    """While active, `aten._linalg_check_errors` is traced like any other operator."""
    if _VERSION < (2, 13):
        return contextlib.nullcontext()
    return applied({"torch._library.effects:EffectHolder.effect": _without_checks})


def _without_checks(original: Any) -> Any:
    def effect(self: Any) -> Any:
        return None if self.qualname == "aten::_linalg_check_errors" else original.fget(self)

    return property(effect, original.fset)
