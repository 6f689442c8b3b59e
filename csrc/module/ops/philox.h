// The random numbers of operators: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers:
// As Easy as 1, 2, 3", SC 2011).
//
// A stream is named by a seed and a number: every element, or every row, of a result draws from its own, so that values
// do not depend on the number of threads. Generated code draws from the same function with 32 bits of a seed.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "tensor.h"

namespace aotpack::module {

class Philox {
 public:
  Philox(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint32_t next() {
    if (used_ == 4) {
      block_ = block(seed_, stream_, position_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t next64() {
    const uint64_t low = next();
    return low | (static_cast<uint64_t>(next()) << 32);
  }
  // In [0, 1), a multiple of 2^-53.
  double unit() { return static_cast<double>(next64() >> 11) * 0x1p-53; }
  // In (0, 1), so that its logarithm and its inverse are finite.
  double open_unit() { return (static_cast<double>(next64() >> 12) + 0.5) * 0x1p-52; }
  // Standard normal (Box and Muller).
  double normal() {
    if (spare_ready_) {
      spare_ready_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(open_unit()));
    const double angle = 6.283185307179586 * unit();
    spare_ = radius * std::sin(angle);
    spare_ready_ = true;
    return radius * std::cos(angle);
  }
  // In [0, span), every number equally likely; `span` 0 stands for 2^64 (Lemire, "Fast Random Integer Generation in an
  // Interval", 2019).
  uint64_t below(uint64_t span) {
    if (span == 0) return next64();
    unsigned __int128 product = static_cast<unsigned __int128>(next64()) * span;
    if (static_cast<uint64_t>(product) < span) {
      const uint64_t uneven = (0 - span) % span;
      while (static_cast<uint64_t>(product) < uneven) product = static_cast<unsigned __int128>(next64()) * span;
    }
    return static_cast<uint64_t>(product >> 64);
  }

  static std::array<uint32_t, 4> block(uint64_t seed, uint64_t stream, uint64_t position) {
    std::array<uint32_t, 4> c{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                              static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    return c;
  }

 private:
  uint64_t seed_, stream_, position_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
  double spare_ = 0;
  bool spare_ready_ = false;
};

// The seed that generated code drew for an operator: int64, one element.
inline uint64_t seed_of(const Tensor* seed) {
  if (seed->dtype != AOTPACK_DTYPE_INT64 || seed->numel() != 1) throw_invalid("a seed must be one int64");
  return static_cast<uint64_t>(*seed->as<int64_t>());
}

}  // namespace aotpack::module
