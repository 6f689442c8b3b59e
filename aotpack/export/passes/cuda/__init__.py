"""Passes that choose kernels for GPUs of NVIDIA."""
