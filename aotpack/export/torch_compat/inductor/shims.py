"""C functions of operators that TorchInductor calls in later versions of torch only: here it does in earlier ones too.

Private interface touched (torch 2.11 to 2.13):
  torchgen.aoti.fallback_ops.inductor_fallback_ops   names of operators that have a C function
"""

from __future__ import annotations

import contextlib

import torch

from aotpack.export.torch_compat.patches import always, applied

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
_SINCE_2_13 = ("grid_sampler_3d", "grid_sampler_3d_backward")


def shims_of_later_versions() -> contextlib.AbstractContextManager[None]:
    """While active, generated code calls these operators by their C functions in every version."""
    names = _SINCE_2_13 if _VERSION < (2, 13) else ()
    table = "torchgen.aoti.fallback_ops:inductor_fallback_ops"
    return applied({f"{table}[aten.{name}.default]": always({}) for name in names})
