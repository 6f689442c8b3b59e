"""Decompositions that TorchInductor gets from us: operators that it has no code for, or has for fixed sizes alone.

All of them are exact, work for any size (0 where the operator does), and are made of operators that do. Where sizes are
fixed and TorchInductor has code of its own, that is left to it. A file of this folder that is not imported here is not
in the table.
"""

from aotpack.export.inductor.decompositions import (
    activations,
    adaptive_pooling,
    attention,
    backward,
    complex_math,
    complex_moves,
    convolution,
    distances,
    division,
    embedding,
    fft,
    histograms,
    indexing,
    integers,
    linalg,
    losses,
    order,
    pooling,
    products,
    quantized,
    random,
    ranges,
    reductions,
    resampling,
    rnn,
    unique,
)
from aotpack.export.inductor.decompositions.table import our_decompositions

__all__ = [
    "activations",
    "adaptive_pooling",
    "attention",
    "backward",
    "complex_math",
    "complex_moves",
    "convolution",
    "distances",
    "division",
    "embedding",
    "fft",
    "histograms",
    "indexing",
    "integers",
    "linalg",
    "losses",
    "order",
    "our_decompositions",
    "pooling",
    "products",
    "quantized",
    "random",
    "ranges",
    "reductions",
    "resampling",
    "rnn",
    "unique",
]
