// Numbers of half precision, and those that tensor cores multiply.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fake_providers {

inline float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
inline uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_half(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t to_half(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }

// With 10 bits of the mantissa.
inline float to_tf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::isfinite(value) ? std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu) : value;
}

}  // namespace fake_providers
