"""Operators that select, scatter or copy elements."""

from aotpack.export.decompositions.indexing import elements, selections, view_copies

__all__ = ["elements", "selections", "view_copies"]
