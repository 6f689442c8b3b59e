"""All families of operators. Importing them fills the table."""

from __future__ import annotations

from aotpack.export.onnx.ops import (
    elementwise,
    indexing,
    normalization,
    products,
    reductions,
    shapes,
    sizes,
)

FAMILIES = (elementwise, indexing, normalization, products, reductions, shapes, sizes)


def register() -> None:
    """Does nothing but make sure that this file, and so every family, is imported."""
