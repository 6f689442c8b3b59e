// The context of a device as the current one of a thread.
#pragma once

#include "hal/cuda/device.h"

namespace aotpack::runtime::cuda {

// For the lifetime of this. Restores what was current before: the thread is the caller's. Throws what
// CudaDevice::check throws.
class Current {
 public:
  explicit Current(CudaDevice& device) : driver_(device.driver()) {
    device.require_usable();
    const ContextHandle wanted = device.context();
    ContextHandle current = nullptr;
    if (driver_.cuCtxGetCurrent(&current) == kSuccess && current == wanted) return;
    device.check(driver_.cuCtxPushCurrent_v2(wanted), "making the device current");
    pushed_ = true;
  }
  ~Current() {
    ContextHandle popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace aotpack::runtime::cuda
