"""TorchInductor's path for CUDA on a host that has neither a GPU nor a torch that was built for one."""
