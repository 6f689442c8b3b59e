"""Passes that choose kernels and layouts of CPUs."""
