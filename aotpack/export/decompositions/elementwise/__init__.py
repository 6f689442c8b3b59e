"""Operators that compute each element by itself."""

from aotpack.export.decompositions.elementwise import activations, division, foreach, gradients, integers, special

__all__ = ["activations", "division", "foreach", "gradients", "integers", "special"]
