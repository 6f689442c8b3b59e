"""Decompositions for TorchInductor: operators that it has no code for, or code for fixed sizes only.

All of them are exact and accept any size (0 where the operator accepts it), and so do the operators that they are made
of. Where sizes are fixed and TorchInductor has code of its own, that code is used. There is one folder for each kind of
operator; a file is registered by the import in the `__init__` of its folder.
"""

from aotpack.export.decompositions import (
    complex,
    creation,
    devices,
    elementwise,
    indexing,
    linalg,
    nn,
    quantization,
    reductions,
    signal,
)
from aotpack.export.decompositions.table import our_decompositions

__all__ = [
    "complex",
    "creation",
    "devices",
    "elementwise",
    "indexing",
    "linalg",
    "nn",
    "our_decompositions",
    "quantization",
    "reductions",
    "signal",
]
