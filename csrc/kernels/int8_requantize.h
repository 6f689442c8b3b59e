// The end of an 8-bit product: from int32 sums to bytes or floats, as conv_int8.h states.
#pragma once

#include "conv_int8.h"
#include "int8_lanes.h"

namespace aotpack::kernels {

// sums[rows][stride], of output pixels from `pixel` on and output channels from `channel` on; `column` is where
// these are packed.
struct Int8Sums {
  const int32_t* sums;
  int64_t stride;
  int rows;
  int64_t pixel, channel, column, columns;
};

// What is done to sums. A copy of its own, for what is written to y might else change it.
struct Int8End {
  const float* factor;
  const float* offset;
  const uint8_t* residual;
  uint8_t* y;
  float low, high, keep, gain, residual_zero;
  bool round_first, residual_signed;
  ByteRange range;  // of results that are bytes
  uint8_t sign;     // turns unsigned into signed ones, or is 0

  explicit Int8End(const Int8ConvArgs& a)
      : factor(a.factor),
        offset(a.offset),
        residual(static_cast<const uint8_t*>(a.residual)),
        y(static_cast<uint8_t*>(a.y)),
        low(a.low),
        high(a.high),
        keep(a.keep),
        gain(a.gain),
        residual_zero(a.residual_zero),
        round_first(a.round_first),
        residual_signed(a.residual_signed),
        sign(a.result == Int8Result::s8 ? 0x80 : 0) {
    const int zero = a.y_zero + sign;
    range = {residual == nullptr ? a.high : a.high_after, zero,
             least_byte(residual == nullptr ? a.low : a.low_after, zero)};
  }
};

namespace detail {
inline constexpr int kColumns = 4 * kWidth;  // that become bytes at once
#if defined(AOTPACK_SVE256)
using byte_lanes = vi;  // widened as they are loaded
#else
typedef uint8_t byte_lanes __attribute__((vector_size(kWidth)));
#endif
using Quads = ByteLanes<kColumns>;

// For |x| < 2^22: pushes the fraction out of the mantissa, to the nearest, ties to even.
AOTPACK_INLINE vf rounded(vf x) { return (x + 12582912.0f) - 12582912.0f; }

AOTPACK_INLINE vi widened(byte_lanes x) {
#if defined(__AVX512F__)
  return reinterpret_cast<vi>(_mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(x)));
#elif defined(AOTPACK_SVE256)
  return x;
#else
  return __builtin_convertvector(x, vi);
#endif
}

// Bytes of four vectors of lanes, side by side, from the order in which bytes_from has them.
AOTPACK_INLINE Quads::bytes in_order(Quads::bytes x) {
#if defined(__AVX512F__)
  const vi words = reinterpret_cast<vi>(x);
  return reinterpret_cast<Quads::bytes>(
      __builtin_shufflevector(words, words, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
#elif defined(__AVX__)
  const vi words = reinterpret_cast<vi>(x);
  return reinterpret_cast<Quads::bytes>(__builtin_shufflevector(words, words, 0, 4, 1, 5, 2, 6, 3, 7));
#else
  return x;
#endif
}

// The first columns of four vectors; what is beyond is not touched in memory.
class Columns {
 public:
#if defined(__AVX512BW__)
  explicit Columns(int64_t count) : count_(count), mask_(count >= 64 ? ~uint64_t{0} : ~(~uint64_t{0} << count)) {}
  byte_lanes load(const uint8_t* from, int vector) const {
    return reinterpret_cast<byte_lanes>(
        _mm_maskz_loadu_epi8(static_cast<__mmask16>(mask_ >> (16 * vector)), from + 16 * vector));
  }
  void store(uint8_t* to, Quads::bytes x) const {
    if (count_ >= 64) return static_cast<void>(std::memcpy(to, &x, 64));
    _mm512_mask_storeu_epi8(to, mask_, reinterpret_cast<__m512i>(x));
  }

 private:
  int64_t count_;
  uint64_t mask_;
#else
  explicit Columns(int64_t count) : count_(count) {}
  byte_lanes load(const uint8_t* from, int vector) const {
    const int64_t count = count_ - vector * kWidth;
    from += vector * kWidth;
#if defined(AOTPACK_SVE256)
    return svld1ub_s32(svwhilelt_b32_s64(0, count), from);
#else
    if (count >= kWidth) return load_as<byte_lanes>(from);
    byte_lanes x{};
    if (count > 0) std::memcpy(&x, from, static_cast<size_t>(count));
    return x;
#endif
  }
  void store(uint8_t* to, Quads::bytes x) const {
    if (count_ >= kColumns) return static_cast<void>(std::memcpy(to, &x, sizeof x));
    std::memcpy(to, &x, static_cast<size_t>(count_));
  }

 private:
  int64_t count_;
#endif
};

// A vector before it is rounded.
template <bool residual>
AOTPACK_INLINE vf scaled(const Int8End& e, vi sums, vf factor, vf offset, byte_lanes other) {
  vf v = __builtin_convertvector(sums, vf) * factor + offset;
  if constexpr (residual) {
    v = at_most(at_least(v, vset(e.low)), vset(e.high));
    if (e.round_first) v = rounded(v);
    vi wide = widened(other);
    if (e.residual_signed) wide = (wide ^ 0x80) - 0x80;
    v = v * vset(e.keep) + (__builtin_convertvector(wide, vf) - e.residual_zero) * vset(e.gain);
  }
  return v;
}

template <bool residual>
void requantize_floats(const Int8ConvArgs& a, const Int8End& end, const Int8Sums& s) {
  const Int8End e = end;
  const vf low = vset(residual ? a.low_after : a.low), high = vset(residual ? a.high_after : a.high);
  for (int64_t c = 0; c < s.columns; c += kWidth) {
    const vf factor = load(a.factor + s.column + c), offset = load(a.offset + s.column + c);
    const Columns columns(s.columns - c);
    for (int r = 0; r < s.rows; ++r) {
      const int64_t at = (s.pixel + r) * a.oc + s.channel + c, count = s.columns - c;
      byte_lanes other{};
      if constexpr (residual) other = columns.load(e.residual + at, 0);
      vf v = scaled<residual>(e, load_lanes(s.sums + r * s.stride + c), factor, offset, other);
      v = at_most(at_least(v, low), high);
      float* to = static_cast<float*>(a.y) + at;
      count >= kWidth ? store(to, v) : store_partial(to, v, static_cast<int>(count));
    }
  }
}
}  // namespace detail

// Up to four vectors of sums of one pixel, side by side, whose first column is packed at `column`; `at` is where
// `columns` of them go in y.
template <bool residual, int vectors>
AOTPACK_INLINE void requantize_bytes(const Int8End& e, const vi (&sums)[vectors], int64_t column, int64_t at,
                                     const detail::Columns& columns) {
  using namespace detail;
  vf v[4] = {};
  AOTPACK_UNROLL
  for (int i = 0; i < vectors; ++i) {
    byte_lanes other{};
    if constexpr (residual) other = columns.load(e.residual + at, i);
    v[i] =
        scaled<residual>(e, sums[i], load(e.factor + column + i * kWidth), load(e.offset + column + i * kWidth), other);
  }
  columns.store(e.y + at, in_order(bytes_from<kColumns>(v, e.range)) ^ e.sign);
}

namespace detail {
// Panels of two vectors, of which all columns count: two rows at a time.
template <bool residual>
void requantize_pairs(const Int8ConvArgs& a, const Int8End& end, const Int8Sums& s) {
  const Int8End e = end;
  const vf factor[2] = {load(a.factor + s.column), load(a.factor + s.column + kWidth)};
  const vf offset[2] = {load(a.offset + s.column), load(a.offset + s.column + kWidth)};
  const Columns columns(2 * kWidth);
  const int64_t next = a.oc;
  for (int r = 0; r < s.rows; r += 2) {
    const int second = r + 1 < s.rows ? 1 : 0;  // or the same again
    const int64_t at[2] = {(s.pixel + r) * next + s.channel, (s.pixel + r + second) * next + s.channel};
    vf v[4];
    AOTPACK_UNROLL
    for (int i = 0; i < 4; ++i) {
      byte_lanes other{};
      if constexpr (residual) other = columns.load(e.residual + at[i / 2], i % 2);
      const int32_t* sums = s.sums + (r + i / 2 * second) * s.stride + i % 2 * kWidth;
      v[i] = scaled<residual>(e, load_lanes(sums), factor[i % 2], offset[i % 2], other);
    }
    const auto y = in_order(bytes_from<kColumns>(v, e.range)) ^ e.sign;
    std::memcpy(e.y + at[0], &y, 2 * kWidth);
    std::memcpy(e.y + at[1], reinterpret_cast<const char*>(&y) + 2 * kWidth, 2 * kWidth);
  }
}

template <bool residual, int vectors>
void requantize_rows(const Int8ConvArgs& a, const Int8End& end, const Int8Sums& s) {
  const Int8End e = end;
  for (int64_t c = 0; c < s.columns; c += vectors * kWidth) {
    const Columns columns(s.columns - c);
    for (int r = 0; r < s.rows; ++r) {
      vi sums[vectors];
      for (int i = 0; i < vectors; ++i) sums[i] = load_lanes(s.sums + r * s.stride + c + i * kWidth);
      requantize_bytes<residual, vectors>(e, sums, s.column + c, (s.pixel + r) * a.oc + s.channel + c, columns);
    }
  }
}
}  // namespace detail

inline void requantize(const Int8ConvArgs& a, const Int8End& e, const Int8Sums& s) {
  constexpr int kPart = static_cast<int>(kPanel) / kWidth < 4 ? static_cast<int>(kPanel) / kWidth : 4;
  const bool residual = a.residual != nullptr;
  if (a.result == Int8Result::f32) {
    return residual ? detail::requantize_floats<true>(a, e, s) : detail::requantize_floats<false>(a, e, s);
  }
  if (kPart == 2 && s.columns == kPanel) {
    return residual ? detail::requantize_pairs<true>(a, e, s) : detail::requantize_pairs<false>(a, e, s);
  }
  residual ? detail::requantize_rows<true, kPart>(a, e, s) : detail::requantize_rows<false, kPart>(a, e, s);
}
inline void requantize(const Int8ConvArgs& a, const Int8Sums& s) { requantize(a, Int8End(a), s); }

}  // namespace aotpack::kernels
