"""GPUs of NVIDIA: TorchInductor's Triton kernels, compiled without a GPU, and host code that launches them."""
