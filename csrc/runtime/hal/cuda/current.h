// The context of a device as the current one of a thread.
#pragma once

#include "hal/cuda/device.h"

namespace aotpack::runtime::cuda {

// For the lifetime of this. Restores what was current before: the thread is the caller's. Asks the driver nothing
// inside another one of the same device. Throws what CudaDevice::check throws.
class Current {
 public:
  explicit Current(CudaDevice& device) : driver_(device.driver()), outer_(innermost_) {
    device.require_usable();
    if (innermost_ == &device) return;
    make_current(device);
    innermost_ = &device;
  }
  ~Current() {
    innermost_ = outer_;
    ContextHandle popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  void make_current(CudaDevice& device) {
    const ContextHandle wanted = device.context();
    ContextHandle current = nullptr;
    if (driver_.cuCtxGetCurrent(&current) == kSuccess && current == wanted) return;
    device.check(driver_.cuCtxPushCurrent_v2(wanted), "making the device current");
    pushed_ = true;
  }

  inline static thread_local CudaDevice* innermost_ = nullptr;
  const Driver& driver_;
  CudaDevice* const outer_;
  bool pushed_ = false;
};

}  // namespace aotpack::runtime::cuda
