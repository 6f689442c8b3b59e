// A kernel of a CUDA device, loaded when it is first launched.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "hal/cuda/driver_functions.h"

namespace aotpack::runtime::cuda {

class CudaDevice;

// Thread-safe. The destructor unloads it, when no work of it goes on any more.
class Kernel {
 public:
  // `code`: a cubin, or zero-terminated PTX; it outlives this.
  Kernel(CudaDevice& device, std::string what, const void* code)
      : device_(device), what_(std::move(what)), code_(code) {}
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // The kernel, which has this name in the code, ready for that much dynamic shared memory. Throws what
  // CudaDevice::check throws. The context is current.
  KernelHandle get(const char* name, uint32_t shared_bytes) {
    const KernelHandle known = kernel_.load(std::memory_order_acquire);
    if (known == nullptr || name_ != name || shared_bytes > max_shared_.load(std::memory_order_acquire)) [[unlikely]] {
      return prepare(name, shared_bytes);
    }
    return known;
  }

 private:
  // Dynamic shared memory that every kernel may use without asking for it.
  static constexpr uint32_t kPlainShared = 48 << 10;

  KernelHandle prepare(const char* name, uint32_t shared_bytes);

  CudaDevice& device_;
  const std::string what_;
  const void* const code_;
  std::mutex mutex_;
  LibraryHandle library_ = nullptr;
  std::string name_;  // written before kernel_, once
  std::atomic<KernelHandle> kernel_{nullptr};
  std::atomic<uint32_t> max_shared_{kPlainShared};
};

}  // namespace aotpack::runtime::cuda
