#include "base/bools.h"

#include <cstdint>
#include <cstring>

namespace aotpack::runtime {
namespace {

constexpr size_t kWords = 8;
constexpr size_t kChunk = kWords * sizeof(uint64_t);

}  // namespace

bool are_bools(const void* bytes, size_t count) noexcept {
  const auto* at = static_cast<const unsigned char*>(bytes);
  // Words side by side, which compilers turn into vectors; one branch for many chunks.
  constexpr size_t kBlock = 64 * kChunk;
  while (count >= kChunk) {
    uint64_t seen[kWords] = {};
    const size_t length = count < kBlock ? count / kChunk * kChunk : kBlock;
    for (const unsigned char* const end = at + length; at != end; at += kChunk) {
      uint64_t words[kWords];
      std::memcpy(words, at, kChunk);
      for (size_t i = 0; i < kWords; ++i) seen[i] |= words[i];
    }
    count -= length;
    uint64_t all = 0;
    for (const uint64_t word : seen) all |= word;
    if ((all & ~uint64_t{0x0101010101010101}) != 0) return false;
  }
  unsigned rest = 0;
  for (size_t i = 0; i < count; ++i) rest |= at[i];
  return rest <= 1;
}

void make_bools(void* bytes, size_t count) noexcept {
  auto* at = static_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) at[i] = at[i] != 0;
}

}  // namespace aotpack::runtime
