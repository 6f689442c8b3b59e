// Conversions between 32 bf16 and two vectors, of floats or of pairs: one holds the even columns, one the odd
// (bf16_epilogue.h).
#pragma once

#include "bf16_copy.h"

#if defined(__AVX512BF16__)

namespace aotpack::kernels {

// The elements of 32 columns at even and at odd places.
struct Split {
  vf even, odd;
};

AOTPACK_INLINE Split load_split(int64_t columns, const bf16* p) {
  const auto both = reinterpret_cast<vu>(_mm512_maskz_loadu_epi16(first_elements(columns), p));
  return {reinterpret_cast<vf>(both << 16), reinterpret_cast<vf>(both & 0xffff0000u)};
}

// Rounded to the nearest bf16, which are the upper halves. A NaN stays one.
AOTPACK_INLINE vu round_to_upper(vf x) {
  const auto bits = reinterpret_cast<vu>(x);
  const vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return reinterpret_cast<vu>(
      _mm512_mask_or_epi32(reinterpret_cast<__m512i>(rounded),
                           _mm512_cmp_ps_mask(reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(x), _CMP_UNORD_Q),
                           reinterpret_cast<__m512i>(bits), _mm512_set1_epi32(0x400000)));
}

// Elements 0 to 15 at even places, 16 to 31 at odd ones.
inline constexpr auto kInterleaved = [] {
  struct alignas(64) {
    uint16_t from[32];
  } order{};
  for (int i = 0; i < 32; ++i) order.from[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  return order;
}();

AOTPACK_INLINE void store_split(int64_t columns, bf16* p, const Split& x) {
  constexpr int kBelowNormal = 0x20;
  constexpr __mmask32 kUpper = 0xaaaaaaaa;
  const auto even = reinterpret_cast<__m512>(x.even), odd = reinterpret_cast<__m512>(x.odd);
  // The instruction takes what lies below the normal range for zero.
  const __mmask16 below = _mm512_fpclass_ps_mask(even, kBelowNormal) | _mm512_fpclass_ps_mask(odd, kBelowNormal);
  if (below == 0) [[likely]] {
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    store_first(columns, p, _mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved.from), both));
    return;
  }
  const vu lower = round_to_upper(x.even) >> 16, upper = round_to_upper(x.odd);
  store_first(columns, p,
              _mm512_mask_blend_epi16(kUpper, reinterpret_cast<__m512i>(lower), reinterpret_cast<__m512i>(upper)));
}

using halves = uint16_t __attribute__((vector_size(64)));

AOTPACK_INLINE halves load_halves(const bf16* p) {
  halves x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
AOTPACK_INLINE void store_halves(bf16* p, halves x) { std::memcpy(p, &x, sizeof x); }

// Two rows of a panel as pairs of bf16, which the instructions multiply.
struct Pairs {
  halves low, high;
};
// Pairs of the even columns and of the odd ones: no lane is moved.
AOTPACK_INLINE Pairs split(halves even, halves odd) {
  using words = uint32_t __attribute__((vector_size(64)));
  constexpr __mmask32 kUpper = 0xaaaaaaaa;
  const auto a = reinterpret_cast<words>(even), b = reinterpret_cast<words>(odd);
  const auto merge = [](words lower, words upper) __attribute__((always_inline)) {
    return reinterpret_cast<halves>(
        _mm512_mask_blend_epi16(kUpper, reinterpret_cast<__m512i>(lower), reinterpret_cast<__m512i>(upper)));
  };
  return {merge(a, b << 16), merge(a >> 16, b)};
}

}  // namespace aotpack::kernels

#endif
