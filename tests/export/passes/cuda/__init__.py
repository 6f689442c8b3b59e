"""Passes for CUDA devices. Operators with Triton kernels are computed by torch here."""
