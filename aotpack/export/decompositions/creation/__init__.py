"""Operators that create tensors: random numbers and ranges."""

from aotpack.export.decompositions.creation import random, ranges

__all__ = ["random", "ranges"]
