"""Activations in the Triton kernels of products."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def activate(total, ACTIVATION: tl.constexpr):
    """Applies the activation of a number of `ops.ACTIVATIONS`."""
    if ACTIVATION == 1:
        # Keeps nan.
        total = tl.where(total < 0, 0.0, total)
    elif ACTIVATION == 2:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == 3:
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        # tanh(u) = 2 sigmoid(2u) - 1
        total = total * tl.sigmoid(2.0 * inner)
    elif ACTIVATION == 4:
        total = total * tl.sigmoid(total)
    elif ACTIVATION == 5:
        total = tl.sigmoid(total)
    elif ACTIVATION == 6:
        total = 2.0 * tl.sigmoid(2.0 * total) - 1.0
    return total
