#include "hal/huge_pool.h"

#include <algorithm>

namespace aotpack::runtime {

void* HugePool::allocate(size_t bytes, size_t alignment) noexcept {
  if (bytes > kRegion) return nullptr;
  const auto next_of = [&](const Region& region) { return (region.used + alignment - 1) & ~(alignment - 1); };
  if (regions_.empty() || next_of(regions_.back()) + bytes > kRegion) {
    try {
      Region region{map_zeros(kRegion)};
      if (region.memory.data() == nullptr) return nullptr;
      regions_.push_back(std::move(region));
    } catch (...) {
      return nullptr;
    }
  }
  Region& region = regions_.back();
  const size_t at = next_of(region);
  region.used = at + bytes;
  ++region.live;
  return region.memory.data() + at;
}

void HugePool::free(void* memory, size_t bytes) noexcept {
  auto* at = static_cast<uint8_t*>(memory);
  const auto region = std::find_if(regions_.begin(), regions_.end(), [&](const Region& each) {
    return at >= each.memory.data() && at < each.memory.data() + kRegion;
  });
  if (--region->live == 0) {
    regions_.erase(region);
  } else {
    return_pages(at, bytes);
  }
}

}  // namespace aotpack::runtime
