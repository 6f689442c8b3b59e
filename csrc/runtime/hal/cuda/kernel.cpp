#include "hal/cuda/kernel.h"

#include "base/status.h"
#include "hal/cuda/current.h"

namespace aotpack::runtime::cuda {

KernelHandle Kernel::prepare(const char* name, uint32_t shared_bytes) {
  const std::lock_guard lock(mutex_);
  const Driver& driver = device_.driver();
  if (library_ == nullptr) {
    device_.check(driver.cuLibraryLoadData(&library_, code_, nullptr, nullptr, 0, nullptr, nullptr, 0),
                  "loading " + what_);
  }
  KernelHandle kernel = kernel_.load(std::memory_order_relaxed);
  if (kernel == nullptr) {
    device_.check(driver.cuLibraryGetKernel(&kernel, library_, name),
                  "finding kernel '" + std::string(name) + "' in " + what_);
    name_ = name;
    kernel_.store(kernel, std::memory_order_release);
  } else if (name_ != name) {
    fail(AOTPACK_DEVICE_FAILED, "%s has one kernel, '%s'; the module launches '%s'", what_.c_str(), name_.c_str(),
         name);
  }
  if (shared_bytes > max_shared_.load(std::memory_order_relaxed)) {
    device_.check(
        driver.cuKernelSetAttribute(kMaxDynamicSharedSize, static_cast<int>(shared_bytes), kernel, device_.ordinal()),
        format("reserving %u bytes of shared memory for kernel '%s'", shared_bytes, name));
    max_shared_.store(shared_bytes, std::memory_order_release);
  }
  return kernel;
}

Kernel::~Kernel() {
  if (library_ == nullptr) return;
  try {
    const Current current(device_);
    device_.driver().cuLibraryUnload(library_);
  } catch (...) {  // the code of a lost device is gone
  }
}

}  // namespace aotpack::runtime::cuda
