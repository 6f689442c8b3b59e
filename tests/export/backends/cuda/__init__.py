"""Building for GPUs on a host without one."""
