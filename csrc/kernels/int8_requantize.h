// The end of an 8-bit product: from int32 sums to bytes or floats, as conv_int8.h states.
#pragma once

#include "conv_int8.h"
#include "int8_dot.h"

namespace aotpack::kernels {

// sums[rows][stride], of output pixels from `pixel` on and output channels from `channel` on; `column` is where
// these are packed.
struct Int8Sums {
  const int32_t* sums;
  int64_t stride;
  int rows;
  int64_t pixel, channel, column, columns;
};

namespace detail {
typedef uint8_t byte_lanes __attribute__((vector_size(kWidth)));

// For |x| < 2^22: pushes the fraction out of the mantissa, to the nearest, ties to even.
inline constexpr float kShifter = 12582912.0f;
AOTPACK_INLINE vi rounded(vf x) { return reinterpret_cast<vi>(reinterpret_cast<vu>(x + kShifter) - 0x4b400000u); }

template <bool residual, bool bytes>
AOTPACK_INLINE void requantize_vector(const Int8ConvArgs& a, const int32_t* sums, vf factor, vf offset, int64_t at,
                                      int64_t count) {
  vf v = __builtin_convertvector(load_lanes(sums), vf) * factor + offset;
  v = at_most(at_least(v, vset(a.low)), vset(a.high));
  if constexpr (residual) {
    if (a.round_first) v = __builtin_convertvector(rounded(v), vf);
    byte_lanes other{};
    const uint8_t* from = static_cast<const uint8_t*>(a.residual) + at;
    if (count >= kWidth) {
      std::memcpy(&other, from, sizeof other);
    } else {
      std::memcpy(&other, from, static_cast<size_t>(count));
    }
    vi wide = __builtin_convertvector(other, vi);
    if (a.residual_signed) wide = (wide ^ 0x80) - 0x80;
    v = v * vset(a.keep) + (__builtin_convertvector(wide, vf) - a.residual_zero) * vset(a.gain);
    v = at_most(at_least(v, vset(a.low_after)), vset(a.high_after));
  }
  if constexpr (bytes) {
    const byte_lanes y = __builtin_convertvector(rounded(v) + a.y_zero, byte_lanes);
    uint8_t* to = static_cast<uint8_t*>(a.y) + at;
    if (count >= kWidth) {
      std::memcpy(to, &y, sizeof y);
    } else {
      std::memcpy(to, &y, static_cast<size_t>(count));
    }
  } else {
    float* to = static_cast<float*>(a.y) + at;
    count >= kWidth ? store(to, v) : store_partial(to, v, static_cast<int>(count));
  }
}

template <bool residual, bool bytes>
void requantize_all(const Int8ConvArgs& a, const Int8Sums& s) {
  for (int64_t c = 0; c < s.columns; c += kWidth) {
    const vf factor = load(a.factor + s.column + c), offset = load(a.offset + s.column + c);
    for (int r = 0; r < s.rows; ++r) {
      requantize_vector<residual, bytes>(a, s.sums + r * s.stride + c, factor, offset,
                                         (s.pixel + r) * a.oc + s.channel + c, s.columns - c);
    }
  }
}
}  // namespace detail

inline void requantize(const Int8ConvArgs& a, const Int8Sums& s) {
  const bool residual = a.residual != nullptr;
  if (a.result == Int8Result::f32) {
    residual ? detail::requantize_all<true, false>(a, s) : detail::requantize_all<false, false>(a, s);
  } else {
    residual ? detail::requantize_all<true, true>(a, s) : detail::requantize_all<false, true>(a, s);
  }
}

}  // namespace aotpack::kernels
