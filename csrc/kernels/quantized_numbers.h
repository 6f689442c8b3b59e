// Packed numbers of 4 and 8 bits as floats.
#pragma once

#include "simd.h"

namespace aotpack::kernels::detail {

inline constexpr int kPanelVectors = static_cast<int>(kPanel) / kWidth;

// What is added to numbers of 4 bits: a table of floats has none, arithmetic leaves them unsigned.
#if defined(__AVX512F__)
inline constexpr float kMiddle = 0.0f;
#else
inline constexpr float kMiddle = 8.0f;
#endif

#if defined(__AVX512F__)
AOTPACK_INLINE vf signed_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<vf>(_mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes)));
}
// The permutation reads the low four bits of each lane alone.
AOTPACK_INLINE void halves(const uint8_t* p, vf* low, vf* high) {
  const vf table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  const __m512i both = _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i upper = reinterpret_cast<__m512i>(reinterpret_cast<vu>(both) >> 4);
  *low = reinterpret_cast<vf>(_mm512_maskz_permutexvar_ps(0xffff, both, reinterpret_cast<__m512>(table)));
  *high = reinterpret_cast<vf>(_mm512_maskz_permutexvar_ps(0xffff, upper, reinterpret_cast<__m512>(table)));
}
#else
#if defined(__AVX2__)
AOTPACK_INLINE vi widen_signed(const uint8_t* p) {
  return reinterpret_cast<vi>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
AOTPACK_INLINE vi widen_unsigned(const uint8_t* p) {
  return reinterpret_cast<vi>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
#elif defined(AOTPACK_SVE256)
AOTPACK_INLINE vi widen_signed(const uint8_t* p) {
  return svld1sb_s32(all_lanes(), reinterpret_cast<const int8_t*>(p));
}
AOTPACK_INLINE vi widen_unsigned(const uint8_t* p) { return svld1ub_s32(all_lanes(), p); }
#else
using vb = uint8_t __attribute__((vector_size(kWidth)));
using vc = int8_t __attribute__((vector_size(kWidth)));
AOTPACK_INLINE vi widen_signed(const uint8_t* p) {
  vc bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, vi);
}
AOTPACK_INLINE vi widen_unsigned(const uint8_t* p) {
  vb bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, vi);
}
#endif
AOTPACK_INLINE vf signed_bytes(const uint8_t* p) { return __builtin_convertvector(widen_signed(p), vf); }
AOTPACK_INLINE void halves(const uint8_t* p, vf* low, vf* high) {
  const vi both = widen_unsigned(p);
  *low = __builtin_convertvector(both & 15, vf);
  *high = __builtin_convertvector(both >> 4, vf);
}
AOTPACK_INLINE void low_and_byte(const uint8_t* p, vf* low, vf* byte) {
  const vi both = widen_unsigned(p);
  *low = __builtin_convertvector(both & 15, vf);
  *byte = __builtin_convertvector(both, vf);
}
#endif

// How the high halves of bytes come: as they are, or as bytes, which are 16 times as much and the low half (where
// kMiddle is not 0).
enum class HighHalves : uint8_t { apart, in_bytes };

// One row of a panel: q for 8 bits, q + kMiddle for 4.
template <int kBits, HighHalves kHighHalves = HighHalves::apart>
AOTPACK_INLINE void panel_row(const uint8_t* w, vf (&out)[kPanelVectors]) {
  if constexpr (kBits == 8) {
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) out[v] = signed_bytes(w + v * kWidth);
  } else {
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors / 2; ++v) {
#if !defined(__AVX512F__)
      if constexpr (kHighHalves == HighHalves::in_bytes) {
        low_and_byte(w + v * kWidth, &out[v], &out[v + kPanelVectors / 2]);
        continue;
      }
#endif
      halves(w + v * kWidth, &out[v], &out[v + kPanelVectors / 2]);
    }
  }
}

}  // namespace aotpack::kernels::detail
