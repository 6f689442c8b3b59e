"""Activations in the Triton kernels of products."""

from __future__ import annotations

import triton
import triton.language as tl

# TorchInductor copies the source of kernels into generated files: they name nothing but `tl` and each other.


@triton.jit
def activate(total, ACTIVATION: tl.constexpr, HALF: tl.constexpr):
    """Applies the activation of a number of `ops.ACTIVATIONS`. HALF: the result is rounded to half precision."""
    if ACTIVATION == 1:
        # Keeps nan.
        total = tl.where(total < 0, 0.0, total)
    elif ACTIVATION == 2 and HALF:
        # Abramowitz and Stegun 7.1.26: the tail of the normal distribution with an error of 1e-7, in half the time.
        z = 0.7071067811865476 * tl.abs(total)
        t = 1.0 / (1.0 + 0.3275911 * z)
        tail = t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
        tail = 0.5 * t * (0.254829592 + tail) * tl.exp2(-1.4426950408889634 * z * z)
        total = total * tl.where(total > 0, 1.0 - tail, tail)
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
