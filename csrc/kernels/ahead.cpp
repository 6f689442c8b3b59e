// An operator's weights are streamed from the third-level cache or from memory while its first rows are multiplied, and
// nothing is left to do meanwhile; the rows after them leave the memory idle. Operators follow each other in the same
// order in every call, so what follows is looked up by the weights of the operator.
#include "ahead.h"

#include <atomic>

#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr size_t kEntries = 1024;
constexpr int64_t kMostBytes = 768 << 10;

// A mixture of several threads' entries is as good as another wrong one.
struct Entry {
  std::atomic<const void*> weights;
  std::atomic<const void*> next;
  std::atomic<int64_t> next_bytes;
};
Entry entries[kEntries];

thread_local const void* last = nullptr;

Entry& entry_of(const void* weights) {
  const uint64_t mixed = (reinterpret_cast<uintptr_t>(weights) >> 6) * 0x9e3779b97f4a7c15u;
  return entries[mixed >> 54];
}

}  // namespace

Weights weights_after(const void* data, int64_t bytes) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (last != nullptr) {
    Entry& before = entry_of(last);
    if (before.weights.load(kRelaxed) != last || before.next.load(kRelaxed) != data) {
      before.weights.store(last, kRelaxed);
      before.next.store(data, kRelaxed);
      before.next_bytes.store(bytes, kRelaxed);
    }
  }
  last = data;
  const Entry& found = entry_of(data);
  if (found.weights.load(kRelaxed) != data) return {nullptr, 0};
  return {static_cast<const char*>(found.next.load(kRelaxed)), found.next_bytes.load(kRelaxed)};
}

Weights share_ahead(const Weights& weights, int thread, int threads) {
  const Range mine = share(weights.bytes, thread, threads);
  return {weights.data + mine.begin, min64(mine.end - mine.begin, kMostBytes)};
}

}  // namespace aotpack::kernels
