// Portable vectors (GCC and Clang vector extensions) at the target's natural width, and float functions on
// them.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS == 256
#include <arm_sve.h>
// Vectors of 32 bytes are SVE's registers: they and the types of <arm_sve.h> convert into each other.
#define AOTPACK_SVE256 1
#endif

#include "types.h"

#if defined(__clang__)
#define AOTPACK_UNROLL _Pragma("unroll")
#else
#define AOTPACK_UNROLL _Pragma("GCC unroll 32")
#endif
#define AOTPACK_INLINE inline __attribute__((always_inline))

namespace aotpack::kernels {

#if defined(__AVX512F__)
inline constexpr int kWidth = 16;
#elif defined(__AVX__) || defined(AOTPACK_SVE256)
inline constexpr int kWidth = 8;
#else
inline constexpr int kWidth = 4;
#endif

using vf = float __attribute__((vector_size(4 * kWidth)));
using vi = int32_t __attribute__((vector_size(4 * kWidth)));
using vu = uint32_t __attribute__((vector_size(4 * kWidth)));
using vh = uint16_t __attribute__((vector_size(2 * kWidth)));

// The same as they lie in memory: any alignment, any declared type. By typedef: clang ignores `aligned` in an alias
// declaration (`using`) and then reads and writes by instructions that fault.
typedef float vf_mem __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));
static_assert(alignof(vf_mem) == 4 && alignof(vh_mem) == 2);

AOTPACK_INLINE vf vset(float x) { return x - vf{}; }  // x - 0 is x, also for -0
#if defined(AOTPACK_SVE256)
AOTPACK_INLINE svbool_t all_lanes() { return svptrue_b32(); }
// The first n of them.
AOTPACK_INLINE svbool_t first_of_lanes(int n) { return svwhilelt_b32_s32(0, n); }
// *p in every lane, by one instruction of the units that load. GCC 12 repeats it by one of those that multiply.
AOTPACK_INLINE vf load_repeated(const float* p) {
  vf x;
  asm("ld1rw {%0.s}, %1/z, %2" : "=w"(x) : "Upl"(all_lanes()), "Q"(*p));
  return x;
}
#endif
AOTPACK_INLINE vi as_int(vf x) { return reinterpret_cast<vi>(x); }
AOTPACK_INLINE vf as_float(vi x) { return reinterpret_cast<vf>(x); }

namespace detail {
using v8 = float __attribute__((vector_size(32)));
using v4 = float __attribute__((vector_size(16)));
using u4 = uint32_t __attribute__((vector_size(16)));
using h4 = uint16_t __attribute__((vector_size(8)));

// Halves and floats by integer arithmetic, for any number of lanes (half.h has the same, one by one).
template <class V, class U, class H>
AOTPACK_INLINE V bf16_widen(H bits) {
  return reinterpret_cast<V>(__builtin_convertvector(bits, U) << 16);
}
template <class U, class H, class V>
AOTPACK_INLINE H bf16_narrow(V x) {
  const U bits = reinterpret_cast<U>(x);
  const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector(x == x ? rounded : quiet, H);
}
template <class V, class U, class H>
AOTPACK_INLINE V f16_widen(H bits) {
  const U word = __builtin_convertvector(bits, U);
  const U sign = (word & 0x8000u) << 16, magnitude = word & 0x7fffu;
  const U normal = (magnitude << 13) + (magnitude >= 0x7c00u ? U{} + 0x70000000u : U{} + 0x38000000u);
  const U tiny = reinterpret_cast<U>(__builtin_convertvector(magnitude, V) * 0x1p-24f);
  return reinterpret_cast<V>(sign | (magnitude < 0x400u ? tiny : normal));
}
template <class U, class H, class V>
AOTPACK_INLINE H f16_narrow(V x) {
  const U word = reinterpret_cast<U>(x), bits = word & 0x7fffffffu;
  const U normal = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  const U tiny = reinterpret_cast<U>(reinterpret_cast<V>(bits) + 0.5f) - 0x3f000000u;
  U half = bits < 0x38800000u ? tiny : normal;
  half = bits >= 0x477ff000u ? U{} + 0x7c00u : half;
  half = bits > 0x7f800000u ? (0x7e00u | ((bits >> 13) & 0x3ffu)) : half;
  return __builtin_convertvector(((word >> 16) & 0x8000u) | half, H);
}
}  // namespace detail

AOTPACK_INLINE vf widen(vh bits, bf16) { return detail::bf16_widen<vf, vu>(bits); }
// Not by AVX512-BF16's instruction, which takes what lies below the normal range for zero.
AOTPACK_INLINE vh narrow(vf x, bf16) { return detail::bf16_narrow<vu, vh>(x); }

// By instructions where there are some: GCC 12 takes vectors of _Float16 apart instead.
#if defined(__AVX512F__)
AOTPACK_INLINE vf widen(vh bits, f16) {
  return reinterpret_cast<vf>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(bits)));
}
AOTPACK_INLINE vh narrow(vf x, f16) {
  return reinterpret_cast<vh>(_mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
AOTPACK_INLINE vf widen(vh bits, f16) { return reinterpret_cast<vf>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(bits))); }
AOTPACK_INLINE vh narrow(vf x, f16) {
  return reinterpret_cast<vh>(_mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
}
#else
AOTPACK_INLINE vf widen(vh bits, f16) { return detail::f16_widen<vf, vu>(bits); }
AOTPACK_INLINE vh narrow(vf x, f16) { return detail::f16_narrow<vu, vh>(x); }
#endif

// load and store for float, bf16 and f16.
AOTPACK_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_mem*>(p); }
AOTPACK_INLINE void store(float* p, vf x) { *reinterpret_cast<vf_mem*>(p) = x; }
// Past the caches, where whole lines are written that they do not hold until they are read: memory is then not read
// first. p is aligned to a vector. Other threads see it after end_of_streams().
AOTPACK_INLINE void stream(float* p, vf x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, reinterpret_cast<__m512>(x));
#elif defined(__AVX__)
  _mm256_stream_ps(p, reinterpret_cast<__m256>(x));
#else
  store(p, x);
#endif
}
inline void end_of_streams() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}
#if defined(AOTPACK_SVE256)
// Halves of lanes in memory, lanes in registers: widened and narrowed on the way.
AOTPACK_INLINE vf load_lanes_of(svbool_t some, const bf16* p) {
  const svuint32_t bits = svld1uh_u32(some, reinterpret_cast<const uint16_t*>(p));
  return svreinterpret_f32_u32(svlsl_n_u32_x(svptrue_b32(), bits, 16));
}
AOTPACK_INLINE vf load_lanes_of(svbool_t some, const f16* p) {
  const svuint32_t bits = svld1uh_u32(some, reinterpret_cast<const uint16_t*>(p));
  return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(bits));
}
AOTPACK_INLINE void store_lanes_of(svbool_t some, bf16* p, vf x) {
  const svuint32_t bits = svreinterpret_u32_bf16(svcvt_bf16_f32_x(svptrue_b32(), x));
  svst1h_u32(some, reinterpret_cast<uint16_t*>(p), bits);
}
AOTPACK_INLINE void store_lanes_of(svbool_t some, f16* p, vf x) {
  const svuint32_t bits = svreinterpret_u32_f16(svcvt_f16_f32_x(svptrue_b32(), x));
  svst1h_u32(some, reinterpret_cast<uint16_t*>(p), bits);
}
template <class T>
AOTPACK_INLINE vf load(const T* p) {
  return load_lanes_of(all_lanes(), p);
}
template <class T>
AOTPACK_INLINE void store(T* p, vf x) {
  store_lanes_of(all_lanes(), p, x);
}
#else
template <class T>
AOTPACK_INLINE vf load(const T* p) {
  return widen(*reinterpret_cast<const vh_mem*>(p), T{});
}
template <class T>
AOTPACK_INLINE void store(T* p, vf x) {
  *reinterpret_cast<vh_mem*>(p) = narrow(x, T{});
}
#endif

// The first n elements, 0 < n < kWidth; the others are read as 0 and not written.
AOTPACK_INLINE vf load_partial(const float* p, int n) {
#if defined(__AVX512F__)
  return reinterpret_cast<vf>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p));
#elif defined(AOTPACK_SVE256)
  return svld1_f32(first_of_lanes(n), p);
#else
  float all[kWidth] = {};
  for (int i = 0; i < n; ++i) all[i] = p[i];
  return load(all);
#endif
}
template <class T>
AOTPACK_INLINE vf load_partial(const T* p, int n) {
#if defined(AOTPACK_SVE256)
  return load_lanes_of(first_of_lanes(n), p);
#else
  T all[kWidth] = {};
  for (int i = 0; i < n; ++i) all[i] = p[i];
  return load(all);
#endif
}
AOTPACK_INLINE void store_partial(float* p, vf x, int n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), reinterpret_cast<__m512>(x));
#elif defined(AOTPACK_SVE256)
  svst1_f32(first_of_lanes(n), p, x);
#else
  float all[kWidth];
  store(all, x);
  for (int i = 0; i < n; ++i) p[i] = all[i];
#endif
}
template <class T>
AOTPACK_INLINE void store_partial(T* p, vf x, int n) {
#if defined(AOTPACK_SVE256)
  store_lanes_of(first_of_lanes(n), p, x);
#else
  T all[kWidth];
  store(all, x);
  for (int i = 0; i < n; ++i) p[i] = all[i];
#endif
}

namespace detail {
// Four elements, for transpositions in registers.
typedef float v4_mem __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t h4_mem __attribute__((vector_size(8), aligned(2), may_alias));
static_assert(alignof(v4_mem) == 4 && alignof(h4_mem) == 2);
AOTPACK_INLINE v4 load4(const float* p) { return *reinterpret_cast<const v4_mem*>(p); }
AOTPACK_INLINE v4 load4(const bf16* p) { return bf16_widen<v4, u4>(h4(*reinterpret_cast<const h4_mem*>(p))); }
AOTPACK_INLINE v4 load4(const f16* p) {
#if defined(__F16C__)
  return reinterpret_cast<v4>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return f16_widen<v4, u4>(h4(*reinterpret_cast<const h4_mem*>(p)));
#endif
}
}  // namespace detail

// A NaN in x comes through both, as in torch. (x86's max and min give their second operand where either is NaN;
// the masked forms are free and spare GCC 12's plain ones, which warn.)
#if defined(__AVX512F__)
AOTPACK_INLINE vf at_least(vf x, vf low) { return reinterpret_cast<vf>(_mm512_maskz_max_ps(0xffff, low, x)); }
AOTPACK_INLINE vf at_most(vf x, vf high) { return reinterpret_cast<vf>(_mm512_maskz_min_ps(0xffff, high, x)); }
#elif defined(__AVX__)
AOTPACK_INLINE vf at_least(vf x, vf low) { return reinterpret_cast<vf>(_mm256_max_ps(low, x)); }
AOTPACK_INLINE vf at_most(vf x, vf high) { return reinterpret_cast<vf>(_mm256_min_ps(high, x)); }
#elif defined(AOTPACK_SVE256)
AOTPACK_INLINE vf at_least(vf x, vf low) { return svmax_f32_x(all_lanes(), x, low); }
AOTPACK_INLINE vf at_most(vf x, vf high) { return svmin_f32_x(all_lanes(), x, high); }
#else
AOTPACK_INLINE vf at_least(vf x, vf low) { return x < low ? low : x; }
AOTPACK_INLINE vf at_most(vf x, vf high) { return x > high ? high : x; }
#endif

namespace detail {
// Folds the lanes of x into one, halves upon halves, by combine(v, v).
template <class V, class Combine>
AOTPACK_INLINE float fold(V x, const Combine& combine) {
  v4 four;
  if constexpr (sizeof(V) == 64) {
    const v8 eight = combine(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                             __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
    four =
        combine(__builtin_shufflevector(eight, eight, 0, 1, 2, 3), __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
  } else if constexpr (sizeof(V) == 32) {
    four = combine(__builtin_shufflevector(x, x, 0, 1, 2, 3), __builtin_shufflevector(x, x, 4, 5, 6, 7));
  } else {
    four = __builtin_shufflevector(x, x, 0, 1, 2, 3);
  }
  const v4 two = combine(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return combine(two, __builtin_shufflevector(two, two, 1, 0, 3, 2))[0];
}
}  // namespace detail

#if defined(AOTPACK_SVE256)
AOTPACK_INLINE float sum_of(vf x) { return svaddv_f32(all_lanes(), x); }
AOTPACK_INLINE float max_of(vf x) { return svmaxv_f32(all_lanes(), x); }  // NaN where any is NaN
#else
AOTPACK_INLINE float sum_of(vf x) {
  return detail::fold(x, [](auto a, auto b) { return a + b; });
}
AOTPACK_INLINE float max_of(vf x) {  // NaN where any is NaN
  return detail::fold(x, [](auto a, auto b) { return ((a > b) | (a != a)) ? a : b; });
}
#endif

namespace detail {
struct Reduced {
  vi n;
  vf n_float;
  vf r;
};
// x = n ln 2 + r with |r| <= ln(2)/2, for |x| < 2^21. The shifter rounds by pushing the fraction out of the mantissa.
AOTPACK_INLINE Reduced reduce_ln2(vf x) {
  const vf shifter = vset(12582912.0f);
  const vf shifted = x * 1.44269504f + shifter;
  const vf n = shifted - shifter;
  vf r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  return {as_int(shifted) - as_int(shifter), n, r};
}
// e^r - 1 - r on the reduced range (coefficients: Cephes expf).
AOTPACK_INLINE vf exp_tail(vf r) {
  vf p = vset(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * (r * r);
}
AOTPACK_INLINE vf power_of_two(vi n) { return as_float((n + 127) << 23); }

// exp(x) for x in [-104, 89] or NaN.
AOTPACK_INLINE vf exp_clamped(vf x) {
  const Reduced d = reduce_ln2(x);
  const vf p = exp_tail(d.r) + d.r + 1.0f;
#if defined(__AVX512F__)
  return reinterpret_cast<vf>(_mm512_maskz_scalef_ps(0xffff, p, d.n_float));
#else
  const vi half = d.n >> 1;  // in two steps, so that both results below the normal range and infinity come out
  return p * power_of_two(half) * power_of_two(d.n - half);
#endif
}
}  // namespace detail

AOTPACK_INLINE vf vexp(vf x) { return detail::exp_clamped(at_most(at_least(x, vset(-104.0f)), vset(89.0f))); }

// exp(x) for x <= 0 or NaN, with less to do; results below the normal range are 0, and never come up on the way:
// Intel's processors take some 150 cycles for each, and masked scores are such.
AOTPACK_INLINE vf vexp_nonpositive(vf x) {
  const detail::Reduced d = detail::reduce_ln2(at_least(x, vset(-87.0f)));
  const vf p = detail::exp_tail(d.r) + d.r + 1.0f;
#if defined(__AVX512F__)
  const __m512 all = reinterpret_cast<__m512>(x), least = reinterpret_cast<__m512>(vset(-87.0f));
  const __mmask16 kept = _mm512_cmp_ps_mask(all, least, _CMP_NLT_UQ);
  return reinterpret_cast<vf>(
      _mm512_maskz_scalef_ps(kept, reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(d.n_float)));
#else
  return x < -87.0f ? vset(0.0f) : p * detail::power_of_two(d.n);
#endif
}

AOTPACK_INLINE vf vabs(vf x) { return as_float(as_int(x) & 0x7fffffff); }
AOTPACK_INLINE vf with_sign_of(vf magnitude, vf sign) {
  return as_float((as_int(magnitude) & 0x7fffffff) | (as_int(sign) & static_cast<int32_t>(0x80000000)));
}

AOTPACK_INLINE vf vsigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }

// tanh|x| = e / (e + 2) with e = exp(2|x|) - 1 computed without cancellation.
AOTPACK_INLINE vf vtanh(vf x) {
  const detail::Reduced d = detail::reduce_ln2(at_most(2.0f * vabs(x), vset(20.0f)));
  const vf scale = detail::power_of_two(d.n);
  const vf e = (detail::exp_tail(d.r) + d.r) * scale + (scale - 1.0f);
  // NaN where x is. A choice of x there would be in vain, and clang 19 merges it with the sign wrongly for AVX-512
  // (vpternlogd with its operands exchanged): tanh(50) was 3.125.
  const vf t = e / (e + 2.0f);
  return with_sign_of(t, x);
}

// x Phi(x) with Phi(-a) = 1/2 (1 + p(a))^-16, a form of Abramowitz and Stegun (7.1.28), p minimax for the error of the
// product, which stays below 6e-8 or 3 units in the last place (beyond x = -2, where there is next to nothing left, it
// is the former). Cheaper than an erf, and without its cancellation: the power is taken of p alone, since
// (1 + p)^2 - 1 = p^2 + 2p keeps the digits that 1 + p has no room for. Far out the power overflows and Phi(-a) is 0.
AOTPACK_INLINE vf vgelu(vf x) {
  const vf a = vabs(x);
  const vf a2 = a * a, a4 = a2 * a2;  // in pairs, not one after the other: the chain would be what takes the time
  const vf p1 = 2.11369842e-2f * a + 4.98678423e-2f, p3 = 2.99257117e-5f * a + 3.28722410e-3f;
  const vf p5 = 8.02713021e-6f * a + 4.93514017e-5f, p7 = 1.67506826e-7f * a - 1.24116980e-6f;
  vf p = ((p7 * a2 + p5) * a4 + (p3 * a2 + p1)) * a;
  AOTPACK_UNROLL
  for (int doubling = 0; doubling < 4; ++doubling) p = p * p + (p + p);
  const vf tail = 0.5f / (1.0f + p);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}
AOTPACK_INLINE vf vgelu_tanh(vf x) {
  return 0.5f * x * (1.0f + vtanh(0.79788456080286536f * (x + 0.044715f * (x * x * x))));
}

// body.operator()<kAct>() for the activation `act`.
template <class Body>
inline void with_act(Act act, const Body& body) {
  switch (act) {
    case Act::none:
      return body.template operator()<Act::none>();
    case Act::relu:
      return body.template operator()<Act::relu>();
    case Act::gelu:
      return body.template operator()<Act::gelu>();
    case Act::gelu_tanh:
      return body.template operator()<Act::gelu_tanh>();
    case Act::silu:
      return body.template operator()<Act::silu>();
    case Act::sigmoid:
      return body.template operator()<Act::sigmoid>();
    case Act::tanh:
      return body.template operator()<Act::tanh>();
    case Act::hardswish:
      return body.template operator()<Act::hardswish>();
    case Act::relu6:
      return body.template operator()<Act::relu6>();
    case Act::hardsigmoid:
      return body.template operator()<Act::hardsigmoid>();
  }
}

template <Act act>
AOTPACK_INLINE vf apply(vf x) {
  const vf zero = vset(0.0f), six = vset(6.0f);
  if constexpr (act == Act::relu) return at_least(x, zero);
  if constexpr (act == Act::gelu) return vgelu(x);
  if constexpr (act == Act::gelu_tanh) return vgelu_tanh(x);
  if constexpr (act == Act::silu) return x / (1.0f + vexp(-x));
  if constexpr (act == Act::sigmoid) return vsigmoid(x);
  if constexpr (act == Act::tanh) return vtanh(x);
  if constexpr (act == Act::hardswish) return x * at_most(at_least(x + 3.0f, zero), six) / 6.0f;
  if constexpr (act == Act::relu6) return at_most(at_least(x, zero), six);
  if constexpr (act == Act::hardsigmoid) return at_most(at_least(x + 3.0f, zero), six) / 6.0f;
  return x;
}

}  // namespace aotpack::kernels
