#include "choices.h"

#include <random>

namespace aotpack::fuzz {
namespace {

const uint8_t* at = nullptr;
const uint8_t* end = nullptr;
std::mt19937_64 generator;

}  // namespace

void start(const uint8_t* data, size_t size) {
  at = data;
  end = data + size;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ data[i]) * 0x100000001b3u;
  }
  generator.seed(hash);
}

uint64_t draw() {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) {
    value = value << 8 | pick(256);
  }
  return value;
}

uint64_t pick(uint64_t n) {
  if (n <= 1) {
    return 0;
  }
  if (n > 256) {
    return generator() % n;
  }
  return (at != end ? *at++ : generator()) % n;
}

bool chance(int percent) { return pick(100) < static_cast<uint64_t>(percent); }

}  // namespace aotpack::fuzz

// Shapes that a manifest allows may want more memory than there is: that has to be an error, and not take long.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=512";
}
