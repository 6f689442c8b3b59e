"""Operators with Triton kernels of this project. TorchInductor compiles them like those of users."""
