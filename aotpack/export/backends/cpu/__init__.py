"""CPUs: TorchInductor's C++, the kernels of this package, and the compiler."""
