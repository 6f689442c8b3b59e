"""What rules for tiles ask of the GPU that code is generated for, and the precision of products."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import torch

# Where there is no GPU, as when a pass puts in an operator: the result has the same sizes with every tile.
_ANY = (100, 96 << 10)


def limits() -> tuple[int, int]:
    """Its multiprocessors, and the bytes of shared memory that a block may have."""
    if not torch.cuda.is_available():
        return _ANY
    gpu: Any = torch.cuda.get_device_properties(0)
    return gpu.multi_processor_count, gpu.shared_memory_per_block_optin


_TF32: contextvars.ContextVar[bool] = contextvars.ContextVar("aotpack_tf32", default=False)


@contextlib.contextmanager
def tf32_products(enabled: bool) -> Iterator[None]:
    """While active, kernels multiply float32 in TF32: with 10 bits of mantissa, and sums in single precision."""
    token = _TF32.set(enabled)
    try:
        yield
    finally:
        _TF32.reset(token)


def uses_tf32(dtype: torch.dtype) -> bool:
    """Whether products of this dtype are computed in TF32."""
    return dtype == torch.float32 and _TF32.get()


def input_precision(dtype: torch.dtype) -> str:
    """What kernels pass to `tl.dot`."""
    return "tf32" if uses_tf32(dtype) else "ieee"
