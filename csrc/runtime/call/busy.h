// A context that runs.
#pragma once

#include <atomic>

#include "base/status.h"

namespace aotpack::runtime {

// Marks a context as running. Two threads in one context would corrupt its state; that is cheap to notice.
class Busy {
 public:
  explicit Busy(std::atomic<bool>* flag) : flag_(flag) {
    if (flag_->exchange(true, std::memory_order_acquire)) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "the context is running on another thread; use one context per thread");
    }
  }
  ~Busy() { flag_->store(false, std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>* flag_;
};

}  // namespace aotpack::runtime
