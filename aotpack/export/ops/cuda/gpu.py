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


# The first compute capability whose copy engine (TMA) reads blocks of matrices for kernels.
_TMA = (9, 0)


def has_tma() -> bool:
    """Whether kernels can take descriptors of matrices."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= _TMA


# How kernels multiply float32, as `tl.dot` names it. "tf32x3": each operand is a sum of two numbers of 11 bits, and
# tensor cores multiply three pairs. That has the error of single precision for magnitudes of 1e-34 and more, and takes
# a fraction of the time of "ieee", which multiplies without tensor cores. "tf32": of 11 bits, once.
FLOAT32_PRODUCTS = ("tf32x3", "ieee", "tf32")

_PRECISION: contextvars.ContextVar[str] = contextvars.ContextVar("aotpack_float32", default=FLOAT32_PRODUCTS[0])


@contextlib.contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """While active, kernels multiply float32 in this way, one of `FLOAT32_PRODUCTS`; sums have single precision."""
    token = _PRECISION.set(precision)
    try:
        yield
    finally:
        _PRECISION.reset(token)


def uses_tf32(dtype: torch.dtype) -> bool:
    """Whether products of this dtype are computed in TF32, once."""
    return dtype == torch.float32 and _PRECISION.get() == "tf32"


def input_precision(dtype: torch.dtype) -> str:
    """What kernels pass to `tl.dot`."""
    return _PRECISION.get() if dtype == torch.float32 else "ieee"
