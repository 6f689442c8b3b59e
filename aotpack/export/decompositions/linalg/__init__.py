"""Linear algebra, matrix products and distances."""

from aotpack.export.decompositions.linalg import distances, factorizations, products

__all__ = ["distances", "factorizations", "products"]
