"""All families of operators. Importing them fills the table."""

from __future__ import annotations

from aotpack.export.onnx.ops import (
    attention,
    casts,
    control_flow,
    elementwise,
    features,
    fused,
    fused_attention,
    images,
    indexing,
    linear_models,
    normalization,
    products,
    quantization,
    random,
    recurrent,
    reductions,
    regions,
    resize,
    sequences,
    shapes,
    signal,
    sizes,
    text,
    training,
    trees,
)

FAMILIES = (
    attention,
    casts,
    control_flow,
    elementwise,
    features,
    fused,
    fused_attention,
    images,
    indexing,
    linear_models,
    normalization,
    products,
    quantization,
    random,
    recurrent,
    reductions,
    regions,
    resize,
    sequences,
    shapes,
    signal,
    sizes,
    text,
    training,
    trees,
)


def register() -> None:
    """Does nothing but make sure that this file, and so every family, is imported."""
