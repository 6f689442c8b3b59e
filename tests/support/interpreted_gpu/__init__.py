"""Archives for GPUs on a host without one.

The driver without a GPU (tests/support/fake_cuda) runs the host code of modules as it is, and Triton's interpreter the
kernels, from the sources that they were compiled from. Two processes: one builds archives and records the sources
(`recording`); the other runs archives (`interpreter`), and has to be started with TRITON_INTERPRET=1.

Beyond the results it checks that kernels stay within allocations, that pointers and numbers have the alignment that
kernels were compiled for, and that launches pass as many bytes of arguments as the cubin takes. It knows nothing of
threads: races within a kernel, shared memory, and what the compiler makes of the source stay untested.
"""
