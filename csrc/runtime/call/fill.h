// Many tensors copied at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aotpack::runtime {

struct CopyOfRange {
  const uint8_t* from;
  uint8_t* to;  // zeros
  size_t bytes;
};

// Copies on up to `threads` threads. Ranges of zeros that several transfers begin with are found once, and their
// destinations are not touched. Throws std::bad_alloc.
void fill_zeros(const std::vector<CopyOfRange>& transfers, int32_t threads);

}  // namespace aotpack::runtime
