"""Passes: programs in, programs out. `common/` is valid on every device, `cpu/` chooses kernels and layouts of CPUs."""
