// The two 16-bit floats. They travel as bits of distinct types; arithmetic is always float.
#pragma once

#include <cstdint>
#include <cstring>

namespace aotpack::kernels {

struct bf16 {
  uint16_t bits;
};
struct f16 {  // IEEE binary16
  uint16_t bits;
};

namespace detail {
inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace detail

inline float to_float(float value) { return value; }
inline float to_float(bf16 value) { return detail::bits_float(static_cast<uint32_t>(value.bits) << 16); }
inline float to_float(f16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu, mantissa = value.bits & 0x3ffu;
  // Not by scaling a float of tiny exponent: a process that takes those for zero would lose the subnormals.
  if (exponent == 0) return detail::bits_float(sign | detail::float_bits(static_cast<float>(mantissa) * 0x1p-24f));
  if (exponent == 0x1fu) return detail::bits_float(sign | 0x7f800000u | (mantissa << 13));
  return detail::bits_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Round to nearest, ties to even; a NaN stays one (quiet).
inline void from_float(float value, float* out) { *out = value; }
inline void from_float(float value, bf16* out) {
  const uint32_t bits = detail::float_bits(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out->bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline void from_float(float value, f16* out) {
  const uint32_t word = detail::float_bits(value), bits = word & 0x7fffffffu;
  uint32_t half;
  if (bits > 0x7f800000u) {
    half = 0x7e00u | ((bits >> 13) & 0x3ffu);
  } else if (bits >= 0x477ff000u) {  // rounds to infinity
    half = 0x7c00u;
  } else if (bits < 0x38800000u) {  // below the normal range: the sum with 1/2 rounds
    half = detail::float_bits(detail::bits_float(bits) + 0.5f) - 0x3f000000u;
  } else {
    half = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  }
  out->bits = static_cast<uint16_t>(((word >> 16) & 0x8000u) | half);
}

}  // namespace aotpack::kernels
