// Kernels of real cubins, which somebody else runs: tests/support/interpreted_gpu.
#pragma once

#include <memory>

#include "kernels.h"

struct CUkern_st;

namespace fake_cuda {

struct InterpretedKernel {
  Kernel kernel;
  std::shared_ptr<CUkern_st> handle;  // NULL: not found yet
};

// The `sm_` number of an ELF file of device code.
int architecture_of(const void* code);
// False where no interpreter is set, or it does not know the kernel.
bool find_interpreted(InterpretedKernel& out, const void* code, const char* name);

}  // namespace fake_cuda
