"""Layers of neural networks and their losses."""

from aotpack.export.decompositions.nn import (
    adaptive_pooling,
    attention,
    convolution,
    embedding,
    flex_attention,
    losses,
    pooling,
    resampling,
    rnn,
)

__all__ = [
    "adaptive_pooling",
    "attention",
    "convolution",
    "embedding",
    "flex_attention",
    "losses",
    "pooling",
    "resampling",
    "rnn",
]
