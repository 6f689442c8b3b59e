"""Fourier transforms and window functions."""

from aotpack.export.decompositions.signal import fft, window_functions

__all__ = ["fft", "window_functions"]
