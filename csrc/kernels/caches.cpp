#include "caches.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace aotpack::kernels {
namespace {

#if defined(__x86_64__)
// Intel's leaf of caches, and AMD's, which has the same fields.
constexpr unsigned kLeaves[] = {4, 0x8000001d};
constexpr unsigned kMostCaches = 8, kInstructions = 2;

int64_t ask(unsigned asked_level) {
  for (const unsigned leaf : kLeaves) {
    for (unsigned i = 0; i < kMostCaches; ++i) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      if (__get_cpuid_count(leaf, i, &a, &b, &c, &d) == 0) break;
      const unsigned kind = a & 31, level = a >> 5 & 7;
      if (kind == 0) break;
      if (level != asked_level || kind == kInstructions) continue;
      const int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1;
      return ways * partitions * line * (static_cast<int64_t>(c) + 1);
    }
  }
  return 0;
}
#else
int64_t ask(unsigned) { return 0; }
#endif

// The answer of the first call: under a hypervisor the question takes tens of microseconds.
template <unsigned kLevel>
int64_t known() {
  static std::atomic<int64_t> answer{-1};
  int64_t bytes = answer.load(std::memory_order_relaxed);
  if (bytes < 0) {
    bytes = ask(kLevel);
    answer.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

}  // namespace

int64_t second_cache_bytes() { return known<2>(); }
int64_t last_cache_bytes() { return known<3>(); }

int64_t near_bytes(int64_t bytes) {
  constexpr int64_t kWhole = int64_t{1} << 20, kLeast = kWhole / 4;
  const int64_t cache = second_cache_bytes();
  if (cache <= 0 || cache >= kWhole) return bytes;
  return bytes / (kWhole / kLeast) * (cache < kLeast ? kLeast : cache) / kLeast;
}

}  // namespace aotpack::kernels
