"""Operators that compute each element by itself."""

from aotpack.export.decompositions.elementwise import (
    activations,
    division,
    foreach,
    gradients,
    integers,
    scaled_sums,
    special,
)

__all__ = ["activations", "division", "foreach", "gradients", "integers", "scaled_sums", "special"]
