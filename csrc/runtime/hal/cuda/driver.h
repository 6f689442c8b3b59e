// The CUDA driver: libcuda, opened when a CUDA device is first asked for. Hosts without it run models on the CPU.
#pragma once

#include <string>

#include "hal/cuda/driver_functions.h"

namespace aotpack::runtime::cuda {

// Immutable and thread-safe. The library stays open until the process ends: the driver does not support unloading.
class Driver {
 public:
  // `library`: a file name for dlopen. Throws UNSUPPORTED_TARGET where the library is missing, older than CUDA 12.0 or
  // finds no device, and says which.
  explicit Driver(const std::string& library);
  // The one of this process: libcuda.so.1, or the library that the environment variable AOTPACK_LIBCUDA names. Throws
  // as the constructor does.
  static const Driver& get();

  int version() const noexcept { return version_; }  // e.g. 12040
  int device_count() const noexcept { return device_count_; }
  bool has_graphs() const noexcept { return has_graphs_; }
  // Whether kernels can be started before those before them have ended.
  bool has_early_starts() const noexcept { return has_early_starts_; }
  // "CUDA_ERROR_INVALID_VALUE (1): invalid argument"
  std::string describe(Result result) const;

#define AOTPACK_MEMBER(symbol, parameters) Result(*symbol) parameters = nullptr;
  AOTPACK_CUDA_FUNCTIONS(AOTPACK_MEMBER)
  AOTPACK_CUDA_GRAPH_FUNCTIONS(AOTPACK_MEMBER)
  AOTPACK_CUDA_EARLY_FUNCTIONS(AOTPACK_MEMBER)
#undef AOTPACK_MEMBER

 private:
  int version_ = 0;
  int device_count_ = 0;
  bool has_graphs_ = false;
  bool has_early_starts_ = false;
};

// "12.4"
std::string version_text(int version);

}  // namespace aotpack::runtime::cuda
