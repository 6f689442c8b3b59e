"""Reductions, order statistics, histograms and sets."""

from aotpack.export.decompositions.reductions import histograms, order_statistics, simple, unique

__all__ = ["histograms", "order_statistics", "simple", "unique"]
