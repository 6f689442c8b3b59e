"""Custom operators that `torch.library` defines.

Private interfaces touched (torch 2.11 to 2.13):
  torch._library.custom_ops.OPDEFS, and of its values: _init_fn, _backend_fns, _backward_fn, _opoverload, _qualname
  torch._library.triton, the module's name
  torch._functorch.config.decompose_custom_triton_ops
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch._functorch.config
from torch._library.custom_ops import OPDEFS

# Where torch.library.triton_op wraps implementations.
TRITON_MODULE = "torch._library.triton"


def custom_definitions() -> Mapping[str, Any]:
    """What `torch.library.custom_op` knows of each operator, by its qualified name."""
    return OPDEFS


@contextlib.contextmanager
def triton_operators_kept() -> Iterator[None]:
    """While active, operators with Triton kernels stay calls: their implementations launch these, on a CPU too."""
    with torch._functorch.config.patch(decompose_custom_triton_ops=False):
        yield
