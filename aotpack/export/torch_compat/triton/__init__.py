"""Triton kernels of users: their launches while a model is traced, what they write, and their results on a CPU."""
