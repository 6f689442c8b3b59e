// The choices that a fuzzer makes: first the bytes of its input, so that libFuzzer can steer them, then pseudo-random
// numbers that follow from those bytes, so that a run can be repeated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotpack::fuzz {

// Begins a new input.
void start(const uint8_t* data, size_t size);

// 64 bits.
uint64_t draw();

// A number below `n`; 0 for n = 0.
uint64_t pick(uint64_t n);

bool chance(int percent);

template <class T, size_t N>
const T& one_of(const T (&items)[N]) {
  return items[pick(N)];
}

}  // namespace aotpack::fuzz
