// Modules of CUDA targets: host code that launches kernels, which are assets of the module.
#pragma once

#include <deque>
#include <string>

#include "hal/cuda/kernel.h"
#include "hal/executable.h"

namespace aotpack::runtime::cuda {

class CudaDevice;

class CudaExecutable final : public Executable {
 public:
  // Throws what Executable throws, and UNSUPPORTED_TARGET when an asset has no code that the device runs.
  CudaExecutable(ExecutableSource source, CudaDevice& device);

  int32_t launch(const aotpack_module_call& call, Stream& stream) const override;

 private:
  void prepare_assets(const ModuleRecord& record, const std::string& what);

  CudaDevice& device_;
  std::deque<std::string> texts_;  // zero-terminated PTX
  std::deque<Kernel> kernels_;     // what the handles of the assets point to
};

}  // namespace aotpack::runtime::cuda
