"""Passes: programs in, programs out. `common/` is true on every device, `cpu/` chooses kernels and layouts of CPUs."""
