"""Kernels in Triton, run by its interpreter."""
