"""torch's dtypes and their numbers in module_abi.h."""

from __future__ import annotations

import torch

from tests.support.operators.descriptors import NUMBERS

DTYPES = {getattr(torch, name): number for name, number in NUMBERS.items()}
TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
