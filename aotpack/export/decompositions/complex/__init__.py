"""Operators on complex tensors, as operators on their real and imaginary parts."""

from aotpack.export.decompositions.complex import arithmetic, moves

__all__ = ["arithmetic", "moves"]
