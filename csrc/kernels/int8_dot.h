// Products of four unsigned by four signed bytes in each 32-bit lane, added to the lane: exact.
#pragma once

#include "simd.h"

#if defined(__AVX512BW__)
#include <cpuid.h>
#endif

namespace aotpack::kernels {

AOTPACK_INLINE vi load_lanes(const void* p) {
  vi x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
AOTPACK_INLINE void store_lanes(void* p, vi x) { std::memcpy(p, &x, sizeof x); }
AOTPACK_INLINE vi broadcast_four(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return four - vi{};
}

#if defined(__AVX512BW__) || defined(__AVX2__) || (defined(__SSE2__) && !defined(__AVX__))
#define AOTPACK_INT8_PAIRS 1
#endif

#if defined(__AVX512BW__)
AOTPACK_INLINE vi multiply_pairs(vi a, vi b) {
  return reinterpret_cast<vi>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#elif defined(__AVX2__)
AOTPACK_INLINE vi multiply_pairs(vi a, vi b) {
  return reinterpret_cast<vi>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
#elif defined(AOTPACK_INT8_PAIRS)
AOTPACK_INLINE vi multiply_pairs(vi a, vi b) {
  return reinterpret_cast<vi>(__builtin_ia32_pmaddwd128(reinterpret_cast<short __attribute__((vector_size(16)))>(a),
                                                        reinterpret_cast<short __attribute__((vector_size(16)))>(b)));
}
#endif

// Without the instruction. Bytes are widened to 16 bits, the even and the odd ones apart: products of unsigned with
// signed bytes in pairs would saturate.
template <bool fused>
struct Int8Dot {
#if defined(AOTPACK_INT8_PAIRS)
  using halves = int16_t __attribute__((vector_size(sizeof(vi))));
  struct Four {
    vi even, odd;
  };
  static AOTPACK_INLINE Four unsigned_four(vi bytes) {
    return {bytes & 0x00ff00ff, reinterpret_cast<vi>(reinterpret_cast<vu>(bytes) >> 8) & 0x00ff00ff};
  }
  static AOTPACK_INLINE Four signed_four(vi bytes) {
    const halves pairs = reinterpret_cast<halves>(bytes);
    return {reinterpret_cast<vi>((pairs << 8) >> 8), reinterpret_cast<vi>(pairs >> 8)};
  }
  static AOTPACK_INLINE vi add(vi sum, const Four& x, const Four& w) {
    return sum + (multiply_pairs(x.even, w.even) + multiply_pairs(x.odd, w.odd));
  }
#else
  struct Four {
    vi each[4];
  };
  static AOTPACK_INLINE Four unsigned_four(vi bytes) {
    const vu bits = reinterpret_cast<vu>(bytes);
    return {{reinterpret_cast<vi>(bits & 0xffu), reinterpret_cast<vi>((bits >> 8) & 0xffu),
             reinterpret_cast<vi>((bits >> 16) & 0xffu), reinterpret_cast<vi>(bits >> 24)}};
  }
  static AOTPACK_INLINE Four signed_four(vi bytes) {
    return {{(bytes << 24) >> 24, (bytes << 16) >> 24, (bytes << 8) >> 24, bytes >> 24}};
  }
  static AOTPACK_INLINE vi add(vi sum, const Four& x, const Four& w) {
    return sum + (x.each[0] * w.each[0] + x.each[1] * w.each[1]) + (x.each[2] * w.each[2] + x.each[3] * w.each[3]);
  }
#endif
};

#if defined(__AVX512BW__)
template <>
struct Int8Dot<true> {
  using Four = vi;
  static AOTPACK_INLINE vi unsigned_four(vi bytes) { return bytes; }
  static AOTPACK_INLINE vi signed_four(vi bytes) { return bytes; }
  static AOTPACK_INLINE vi add(vi sum, vi x, vi w) {
    // Not through an intrinsic: the target at large does not have it, the processor was asked.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
  }
};
#endif

// Whether the processor has the instruction. Asked once: virtual machines take microseconds to answer.
inline bool has_int8_dot() {
#if defined(__AVX512BW__)
  static const bool found = [] {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & (1u << 11)) != 0;  // AVX512_VNNI
  }();
  return found;
#else
  return false;
#endif
}

}  // namespace aotpack::kernels
