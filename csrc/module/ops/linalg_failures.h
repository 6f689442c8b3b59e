// Which matrix of a batch an algorithm failed for first.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tensor.h"

namespace aotpack::module {

class FirstFailure {
 public:
  // From any thread.
  void note(int64_t number) {
    int64_t known = first_.load(std::memory_order_relaxed);
    while ((known < 0 || number < known) && !first_.compare_exchange_weak(known, number, std::memory_order_relaxed)) {
    }
  }
  bool any() const { return first_.load(std::memory_order_relaxed) >= 0; }
  // ": (Batch element 3)", as torch writes it; "" of a single matrix.
  std::string element(bool single) const {
    return single ? "" : ": (Batch element " + std::to_string(first_.load(std::memory_order_relaxed)) + ")";
  }
  // Fails a call of linalg.eigh for a tensor of this rank if there is any.
  void check_eigh(int32_t rank) const {
    if (!any()) return;
    throw_invalid("linalg.eigh" + element(rank == 2) +
                  ": The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
                  "repeated eigenvalues, or has elements that are not finite.");
  }

 private:
  std::atomic<int64_t> first_{-1};
};

}  // namespace aotpack::module
