"""Operators that select, scatter or copy elements."""

from aotpack.export.decompositions.indexing import elements, view_copies

__all__ = ["elements", "view_copies"]
