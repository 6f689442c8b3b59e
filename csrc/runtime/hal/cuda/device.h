// CUDA devices: the memory and streams of a GPU, through the driver alone.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hal/cuda/driver.h"
#include "hal/cuda/strided.h"
#include "hal/cuda/targets.h"
#include "hal/device.h"

namespace aotpack::runtime::cuda {

// Works in the primary context of the GPU, which other libraries of the process share, so tensors pass by pointer. The
// context is retained at the first use and kept.
class CudaDevice final : public Device {
 public:
  // Throws UNSUPPORTED_TARGET when the driver has no device of this index.
  CudaDevice(const Driver& driver, int index);

  DLDevice id() const noexcept override { return {kDLCUDA, index_}; }
  bool is_host() const noexcept override { return false; }
  std::string description() const override;
  const std::vector<std::string_view>& targets() const override { return targets_; }
  std::string missing(std::string_view target) const override;
  size_t input_alignment() const noexcept override { return 16; }

  void* allocate(size_t bytes, size_t alignment) noexcept override;
  void free(void* memory) noexcept override;
  void upload(const std::vector<Transfer>& transfers) override;

  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Stream> default_stream() override;
  std::unique_ptr<Stream> borrow_stream(void* handle) override;
  std::unique_ptr<Executable> load(ExecutableSource source) override;

  bool has_graphs() const noexcept override { return driver_.has_graphs(); }
  std::unique_ptr<Graph> make_graph(Recording recording, void* const* slots) override;
  bool argument_sizes(const aotpack_module_launch& launch, std::vector<uint32_t>* out) override;
  void tensor_map(const aotpack_module_tensor_map& map) override;
  bool has_library(std::string_view operation) override;

  const Driver& driver() const noexcept { return driver_; }
  Ordinal ordinal() const noexcept { return ordinal_; }
  Capability capability() const noexcept { return capability_; }
  size_t total_memory() const noexcept { return total_memory_; }
  const std::string& product_name() const noexcept { return product_name_; }
  StridedKernels& strided_kernels() noexcept { return strided_; }

  // The primary context. Throws what check() throws.
  ContextHandle context();

  // Throws unless a call of the driver has succeeded: OUT_OF_MEMORY, or DEVICE_FAILED with `what` (e.g. "a launch of
  // kernel 'k'") and the driver's words. An error that makes the context unusable is remembered, and all later use of
  // the device fails with it.
  void check(Result result, const std::string& what) {
    if (result != kSuccess) [[unlikely]]
      raise(result, what);
  }
  void check(Result result, const char* what) {
    if (result != kSuccess) [[unlikely]]
      raise(result, what);
  }
  [[noreturn]] void raise(Result result, const std::string& what);
  void require_usable() const override {
    if (is_lost_.load(std::memory_order_acquire)) [[unlikely]]
      throw_lost();
  }

 private:
  [[noreturn]] void throw_lost() const;

  const Driver& driver_;
  const int index_;
  Ordinal ordinal_ = 0;
  Capability capability_;
  size_t total_memory_ = 0;
  std::string product_name_;
  std::vector<std::string_view> targets_;
  std::atomic<ContextHandle> context_{nullptr};
  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;
  std::string lost_;  // the first error that made the device unusable; guarded by mutex_
  StridedKernels strided_;
};

// The device of this process with that index; it lives until the process ends. Throws UNSUPPORTED_TARGET where there is
// no driver or no such device.
CudaDevice& cuda_device(int index);

}  // namespace aotpack::runtime::cuda
