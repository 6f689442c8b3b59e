// Products of four unsigned by four signed bytes in each 32-bit lane, added to the lane: exact.
#pragma once

#include "simd.h"

#if defined(__AVX512BW__)
#include <cpuid.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace aotpack::kernels {

// Not by memcpy, for which GCC copies vectors on ARM through other registers and keeps sums in memory.
typedef int32_t vi_mem __attribute__((vector_size(4 * kWidth), aligned(1), may_alias));
static_assert(alignof(vi_mem) == 1);
AOTPACK_INLINE vi load_lanes(const void* p) { return *static_cast<const vi_mem*>(p); }
AOTPACK_INLINE void store_lanes(void* p, vi x) { *static_cast<vi_mem*>(p) = x; }
AOTPACK_INLINE vi broadcast_four(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return four - vi{};
}

#if defined(__AVX512BW__) || defined(__AVX2__) || (defined(__SSE2__) && !defined(__AVX__))
#define AOTPACK_INT8_PAIRS 1
#endif

// Products of pairs of halves, added, for each width of vectors that the target has.
#if defined(__AVX512BW__)
template <class V>
  requires(sizeof(V) == 64)
AOTPACK_INLINE V multiply_pairs(V a, V b) {
  return reinterpret_cast<V>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#endif
#if defined(__AVX2__)
template <class V>
  requires(sizeof(V) == 32)
AOTPACK_INLINE V multiply_pairs(V a, V b) {
  return reinterpret_cast<V>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
#endif
#if defined(AOTPACK_INT8_PAIRS)
template <class V>
  requires(sizeof(V) == 16)
AOTPACK_INLINE V multiply_pairs(V a, V b) {
  return reinterpret_cast<V>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
#endif

// Whether some processor that runs this code has the instruction.
#if defined(__AVX512BW__) || defined(__ARM_FEATURE_DOTPROD)
#define AOTPACK_INT8_DOT 1
#endif

// Without the instruction. Bytes are widened to 16 bits, the even and the odd ones apart: products of unsigned with
// signed bytes in pairs would saturate.
template <bool fused, class V = vi>
struct Int8Dot {
  typedef uint32_t Unsigned __attribute__((vector_size(sizeof(V))));
#if defined(AOTPACK_INT8_PAIRS)
  typedef int16_t halves __attribute__((vector_size(sizeof(V))));
  struct Four {
    V even, odd;
  };
  static AOTPACK_INLINE Four unsigned_four(V bytes) {
    return {bytes & 0x00ff00ff, reinterpret_cast<V>(reinterpret_cast<Unsigned>(bytes) >> 8) & 0x00ff00ff};
  }
  static AOTPACK_INLINE Four signed_four(V bytes) {
    const halves pairs = reinterpret_cast<halves>(bytes);
    return {reinterpret_cast<V>((pairs << 8) >> 8), reinterpret_cast<V>(pairs >> 8)};
  }
  static AOTPACK_INLINE V add(V sum, const Four& x, const Four& w) {
    return sum + (multiply_pairs(x.even, w.even) + multiply_pairs(x.odd, w.odd));
  }
#else
  struct Four {
    V each[4];
  };
  static AOTPACK_INLINE Four unsigned_four(V bytes) {
    const Unsigned bits = reinterpret_cast<Unsigned>(bytes);
    return {{reinterpret_cast<V>(bits & 0xffu), reinterpret_cast<V>((bits >> 8) & 0xffu),
             reinterpret_cast<V>((bits >> 16) & 0xffu), reinterpret_cast<V>(bits >> 24)}};
  }
  static AOTPACK_INLINE Four signed_four(V bytes) {
    return {{(bytes << 24) >> 24, (bytes << 16) >> 24, (bytes << 8) >> 24, bytes >> 24}};
  }
  static AOTPACK_INLINE V add(V sum, const Four& x, const Four& w) {
    return sum + (x.each[0] * w.each[0] + x.each[1] * w.each[1]) + (x.each[2] * w.each[2] + x.each[3] * w.each[3]);
  }
#endif
};

#if defined(__AVX512BW__)
// Not through an intrinsic: the target at large does not have it, the processor was asked. Tests emulate it.
#if !defined(AOTPACK_DPBUSD)
#define AOTPACK_DPBUSD(sum, x, w) asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#endif
template <class V>
struct Int8Dot<true, V> {
  using Four = V;
  static AOTPACK_INLINE V unsigned_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V signed_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V add(V sum, V x, V w) {
    AOTPACK_DPBUSD(sum, x, w);
    return sum;
  }
};
#elif defined(__ARM_FEATURE_DOTPROD)
#if defined(AOTPACK_SVE256)
template <class V>
  requires(sizeof(V) == 32)
struct Int8Dot<true, V> {
  typedef uint8_t Bytes __attribute__((vector_size(sizeof(V))));
  typedef int8_t SignedBytes __attribute__((vector_size(sizeof(V))));
  using Four = V;
  static AOTPACK_INLINE V unsigned_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V signed_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V add(V sum, V x, V w) {
    return svusdot_s32(sum, reinterpret_cast<Bytes>(x), reinterpret_cast<SignedBytes>(w));
  }
};
#endif
template <class V>
  requires(sizeof(V) == 16)
struct Int8Dot<true, V> {
  using Four = V;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  static AOTPACK_INLINE V unsigned_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V signed_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V add(V sum, V x, V w) {
    return reinterpret_cast<V>(
        vusdotq_s32(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<uint8x16_t>(x), reinterpret_cast<int8x16_t>(w)));
  }
#else
  // The instruction multiplies numbers of the same sign: 128 is taken from those without one, and 128 times the sum
  // of the others added, once for all that are multiplied with them.
  static AOTPACK_INLINE V unsigned_four(V bytes) { return bytes ^ static_cast<int32_t>(0x80808080u); }
  static AOTPACK_INLINE V signed_four(V bytes) { return bytes; }
  static AOTPACK_INLINE V add(V sum, V x, V w) {
    const int8x16_t numbers = reinterpret_cast<int8x16_t>(w), half = vdupq_n_s8(64);
    const int32x4_t rest = vdotq_s32(vdotq_s32(vdupq_n_s32(0), numbers, half), numbers, half);
    return add_shifted(reinterpret_cast<V>(vaddq_s32(reinterpret_cast<int32x4_t>(sum), rest)), x, w);
  }
  // The same without the latter.
  static AOTPACK_INLINE V add_shifted(V sum, V x, V w) {
    return reinterpret_cast<V>(
        vdotq_s32(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<int8x16_t>(x), reinterpret_cast<int8x16_t>(w)));
  }
#endif
};
#endif

// Where unsigned bytes are multiplied less 128: to[c] = init[c] + 128 times the sum of column c of w, [steps][32][4].
#if defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
inline constexpr bool kInt8Shifts = true;
inline void int8_shift(const int8_t* w, int64_t steps, const int32_t* init, int32_t* to) {
  constexpr int kVectors = static_cast<int>(kPanel) / 4;
  int32x4_t sums[kVectors] = {};
  for (int64_t s = 0; s < steps; ++s, w += 4 * kPanel) {
    AOTPACK_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[v] = vdotq_s32(sums[v], vld1q_s8(w + 16 * v), vdupq_n_s8(1));
  }
  AOTPACK_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    vst1q_s32(to + 4 * v, vaddq_s32(vld1q_s32(init + 4 * v), vshlq_n_s32(sums[v], 7)));
  }
}
#else
inline constexpr bool kInt8Shifts = false;
inline void int8_shift(const int8_t*, int64_t, const int32_t*, int32_t*) {}
#endif

// Whether the processor has the instruction. Asked once: virtual machines take microseconds to answer.
inline bool has_int8_dot() {
#if defined(__AVX512BW__)
  static const bool found = [] {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & (1u << 11)) != 0;  // AVX512_VNNI
  }();
  return found;
#elif defined(AOTPACK_INT8_DOT)
  return true;  // as all that run the target
#else
  return false;
#endif
}

}  // namespace aotpack::kernels
