#include "call/fill.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "host/file_map.h"
#include "host/huge_memory.h"

namespace aotpack::runtime {
namespace {

// Below, a thread takes longer to begin than to copy.
constexpr size_t kBytesPerThread = size_t{8} << 20;

bool are_zeros(const uint8_t* data, size_t bytes) noexcept {
  return bytes == 0 || (data[0] == 0 && std::memcmp(data, data + 1, bytes - 1) == 0);
}

// Parts of transfers: each lies in one huge page of the destination, which one thread touches first.
std::vector<CopyOfRange> split(const std::vector<CopyOfRange>& transfers) {
  std::vector<CopyOfRange> parts;
  for (CopyOfRange rest : transfers) {
    while (rest.bytes > 0) {
      const size_t left = kHugePage - reinterpret_cast<uintptr_t>(rest.to) % kHugePage;
      const size_t bytes = std::min(left, rest.bytes);
      parts.push_back({rest.from, rest.to, bytes});
      rest = {rest.from + bytes, rest.to + bytes, rest.bytes - bytes};
    }
  }
  return parts;
}

template <typename Visit>
void for_each_part(const std::vector<CopyOfRange>& transfers, int32_t threads, const Visit& visit) {
  const std::vector<CopyOfRange> parts = split(transfers);
  size_t bytes = 0;
  for (const CopyOfRange& part : parts) bytes += part.bytes;
  std::atomic<size_t> next{0};
  const auto work = [&]() noexcept {
    for (size_t i = next++; i < parts.size(); i = next++) visit(parts[i]);
  };
  std::vector<std::thread> others;
  const size_t useful = std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), bytes / kBytesPerThread);
  try {
    while (others.size() + 1 < useful) others.emplace_back(work);
  } catch (...) {  // without them it takes longer
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace

void fill_zeros(const std::vector<CopyOfRange>& transfers, int32_t threads) {
  // Pages of the file do not stay in this process, whose memory would be the sum.
  // The state of an optimizer that has not begun: one range of zeros in the archive for all of its tensors.
  std::map<const uint8_t*, std::vector<CopyOfRange>> by_source;
  for (const CopyOfRange& transfer : transfers) by_source[transfer.from].push_back(transfer);
  std::vector<CopyOfRange> needed;
  for (const auto& [from, all] : by_source) {
    const auto largest = std::max_element(all.begin(), all.end(), [](const CopyOfRange& one, const CopyOfRange& other) {
      return one.bytes < other.bytes;
    });
    if (all.size() > 1) {
      std::atomic<bool> zeros{true};
      for_each_part({*largest}, threads, [&](const CopyOfRange& part) noexcept {
        if (zeros && !are_zeros(part.from, part.bytes)) zeros = false;
      });
      FileMap::forget({from, largest->bytes});
      if (zeros) continue;
    }
    needed.insert(needed.end(), all.begin(), all.end());
  }
  for_each_part(needed, threads, [](const CopyOfRange& part) noexcept {
    if (!are_zeros(part.from, part.bytes)) std::memcpy(part.to, part.from, part.bytes);
    FileMap::forget({part.from, part.bytes});
  });
}

}  // namespace aotpack::runtime
