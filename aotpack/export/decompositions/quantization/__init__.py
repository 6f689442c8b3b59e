"""Quantization, fake quantization and its observers."""

from aotpack.export.decompositions.quantization import fake_quantization, observers

__all__ = ["fake_quantization", "observers"]
