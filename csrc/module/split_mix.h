// SplitMix64 (Steele, Lea and Flood 2014).
#pragma once

#include <cstdint>

namespace aotpack::module {

// The stream of numbers that `state` names.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // At least `low`, less than `high`; low < high.
  int64_t between(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    // The high part of a 128-bit product is uniform to within 2^-64 of the span.
    const uint64_t offset = static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * span) >> 64);
    return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
  }

 private:
  uint64_t state_;
};

}  // namespace aotpack::module
