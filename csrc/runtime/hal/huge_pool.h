// Many blocks in few huge pages.
#pragma once

#include <cstddef>
#include <vector>

#include "host/huge_memory.h"

namespace aotpack::runtime {

// Blocks of memory of the host, each after the one before. A call that asks for much memory for the first time meets
// one page fault for 2 MB of it. Blocks should be kept and used again: the room of one that is freed serves no other
// until all of its region are free, although its pages go back to the system. Belongs to one thread at a time.
class HugePool {
 public:
  static constexpr size_t kRegion = 16 * kHugePage;

  // At a multiple of `alignment`, a power of two; NULL when there is no memory, or for more than a region.
  void* allocate(size_t bytes, size_t alignment) noexcept;
  // What allocate returned for so many bytes.
  void free(void* memory, size_t bytes) noexcept;

 private:
  struct Region {
    Mapping memory;
    size_t used = 0;
    size_t live = 0;  // blocks
  };
  std::vector<Region> regions_;  // blocks come from the last one
};

}  // namespace aotpack::runtime
