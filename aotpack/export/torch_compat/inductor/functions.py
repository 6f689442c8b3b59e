"""Functions of vectorised code that keep their digits near 0, where TorchInductor's text for them loses all.

It spells `expm1` as e^x - 1 and `atanh` by the logarithm of (1 + x) / (1 - x), and at::vec's `erf` is 1 minus
something: below 6e-8 each is 0 in float32, where eager returns x, or 1.13 x. ELU, SELU and CELU are made of `expm1`.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.codegen.cpp.CppVecOverrides.{atanh, erf, expm1}   the text of a call in vectorised code
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from aotpack.export.torch_compat.patches import replaced


# Scalar code, which is right, is found by these functions' names.
def atanh(x: Any) -> str:
    """The text of a call of Vectorized::atanh: Sleef's name, csrc/module/vecmath's code."""
    return f"{x}.atanh()"


def erf(x: Any) -> str:
    """The text of a call of `aotpack_erf` (csrc/module/vecmath/erf.h)."""
    return f"aotpack_erf({x})"


def expm1(x: Any) -> str:
    """The text of a call of Vectorized::expm1."""
    return f"{x}.expm1()"


@contextlib.contextmanager
def accurate_functions() -> Iterator[None]:
    """While active, vectorised code calls the functions above."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    with contextlib.ExitStack() as stack:
        for function in (atanh, erf, expm1):
            stack.enter_context(replaced(CppVecOverrides, function.__name__, staticmethod(function)))
        yield
