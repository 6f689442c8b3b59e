// The work of modules that libraries do: each operation goes to the library that has it.
#pragma once

#include <memory>
#include <string_view>

#include "hal/cuda/cublaslt.h"
#include "hal/cuda/cudnn.h"
#include "hal/cuda/cufft.h"
#include "hal/cuda/cusolver.h"
#include "hal/cuda/library_work.h"

namespace aotpack::runtime::cuda {

// Plans and handles of one stream, made when a call first needs them. Belongs to one thread at a time.
class Providers {
 public:
  // Whether the operation is known, and the host has a library for it. Thread-safe.
  static bool can_run(std::string_view operation);

  // False where the operation is not known, or where the host has no library for it. What is written is undefined then.
  // Throws DEVICE_FAILED or OUT_OF_MEMORY. The context of the device is current.
  bool run(const aotpack_module_library_call& call, LibraryWork& work);

 private:
  std::unique_ptr<FourierTransforms> transforms_;
  std::unique_ptr<LinearAlgebra> algebra_;
  std::unique_ptr<MatrixProducts> products_;
  std::unique_ptr<Convolutions> convolutions_;
};

}  // namespace aotpack::runtime::cuda
