// A thread on chosen CPUs.
#pragma once

#include <utility>

#include "host/cpus.h"

namespace aotpack::runtime {

// Binds the calling thread to `cpus` until the end of a scope; no CPUs: does nothing. Threads that it creates meanwhile
// are bound, too. Two or three system calls.
class BoundThread {
 public:
  explicit BoundThread(const CpuSet& cpus) {
    if (cpus.empty()) [[likely]]
      return;
    CpuSet before = cpus_of_thread();
    is_bound_ = before == cpus || bind_thread(cpus);
    if (is_bound_ && before != cpus) before_ = std::move(before);
  }
  ~BoundThread() {
    if (!before_.empty()) [[unlikely]]
      bind_thread(before_);
  }
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

  // False without CPUs, and where the system does not grant each of them.
  bool is_bound() const noexcept { return is_bound_; }

 private:
  CpuSet before_;
  bool is_bound_ = false;
};

}  // namespace aotpack::runtime
