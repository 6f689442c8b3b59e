// A vector of N elements, by GCC's vector extension, so that one source serves every instruction set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#if defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS == 256
#include <arm_sve.h>
#define AOTPACK_VECMATH_SVE256 1
#endif
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#define AOTPACK_VEC static inline __attribute__((always_inline))

namespace aotpack::vecmath {

// Wrapped in a struct: compilers drop the attributes of a bare vector type that is a template's argument.
template <typename T, int N>
struct Pack {
  typedef T Vector __attribute__((vector_size(N * sizeof(T))));
  Vector v;
};
template <int N>
using F32 = typename Pack<float, N>::Vector;
template <int N>
using I32 = typename Pack<int32_t, N>::Vector;
template <int N>
using F64 = typename Pack<double, N>::Vector;
template <int N>
using I64 = typename Pack<int64_t, N>::Vector;
template <int N>
using U64 = typename Pack<uint64_t, N>::Vector;

template <typename To, typename From>
AOTPACK_VEC To bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &x, sizeof(to));
  return to;
}

// a * b + c, fused where the target can; callers must not depend on it being fused.
template <int N>
AOTPACK_VEC F64<N> fma64(F64<N> a, F64<N> b, F64<N> c) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_fmadd_pd(a, b, c);
#endif
#if defined(__FMA__)
  if constexpr (N == 4) return _mm256_fmadd_pd(a, b, c);
  if constexpr (N == 2) return _mm_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  if constexpr (N == 2) return (F64<N>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#endif
#if defined(AOTPACK_VECMATH_SVE256)
  if constexpr (N == 4) return svmla_f64_x(svptrue_b64(), c, a, b);
#endif
  return a * b + c;
}

template <int N>
AOTPACK_VEC F32<N> fma32(F32<N> a, F32<N> b, F32<N> c) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return _mm512_fmadd_ps(a, b, c);
#endif
#if defined(__FMA__)
  if constexpr (N == 8) return _mm256_fmadd_ps(a, b, c);
  if constexpr (N == 4) return _mm_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  if constexpr (N == 4) return (F32<N>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
#if defined(AOTPACK_VECMATH_SVE256)
  if constexpr (N == 8) return svmla_f32_x(svptrue_b32(), c, a, b);
#endif
  return a * b + c;
}

template <int N>
AOTPACK_VEC F64<N> sqrt64(F64<N> x) {
#if defined(__AVX512F__)
  if constexpr (N == 8) return _mm512_sqrt_pd(x);
#endif
#if defined(__AVX__)
  if constexpr (N == 4) return _mm256_sqrt_pd(x);
#endif
#if defined(__x86_64__)
  if constexpr (N == 2) return _mm_sqrt_pd(x);
#elif defined(__aarch64__)
  if constexpr (N == 2) return (F64<N>)vsqrtq_f64((float64x2_t)x);
#endif
#if defined(AOTPACK_VECMATH_SVE256)
  if constexpr (N == 4) return svsqrt_f64_x(svptrue_b64(), x);
#endif
  for (int i = 0; i < N; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}

// The lower and the upper half of x in double.
template <int N>
AOTPACK_VEC void widen(F32<N> x, F64<N / 2>& low, F64<N / 2>& high) {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    high = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
    return;
  }
#endif
#if defined(__AVX__)
  if constexpr (N == 8) {
    low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return;
  }
#endif
#if defined(__x86_64__)
  if constexpr (N == 4) {
    low = _mm_cvtps_pd(x);
    high = _mm_cvtps_pd(_mm_movehl_ps(x, x));
    return;
  }
#elif defined(__aarch64__)
  if constexpr (N == 4) {
    low = (F64<2>)vcvt_f64_f32(vget_low_f32((float32x4_t)x));
    high = (F64<2>)vcvt_high_f64_f32((float32x4_t)x);
    return;
  }
#endif
#if defined(AOTPACK_VECMATH_SVE256)
  if constexpr (N == 8) {  // conversions read and write the even lanes of floats
    low = svcvt_f64_f32_x(svptrue_b64(), svzip1_f32(x, x));
    high = svcvt_f64_f32_x(svptrue_b64(), svzip2_f32(x, x));
    return;
  }
#endif
  for (int i = 0; i < N / 2; ++i) low[i] = x[i], high[i] = x[i + N / 2];
}

template <int N>
AOTPACK_VEC F32<N> narrow(F64<N / 2> low, F64<N / 2> high) {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    const __m512d half = _mm512_castps_pd(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)));
    return _mm512_castpd_ps(_mm512_insertf64x4(half, _mm256_castps_pd(_mm512_cvtpd_ps(high)), 1));
  }
#endif
#if defined(__AVX__)
  if constexpr (N == 8)
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(low)), _mm256_cvtpd_ps(high), 1);
#endif
#if defined(__x86_64__)
  if constexpr (N == 4) return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
#elif defined(__aarch64__)
  if constexpr (N == 4) return (F32<4>)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)low), (float64x2_t)high);
#endif
#if defined(AOTPACK_VECMATH_SVE256)
  if constexpr (N == 8) return svuzp1_f32(svcvt_f32_f64_x(svptrue_b64(), low), svcvt_f32_f64_x(svptrue_b64(), high));
#endif
  F32<N> x;
  for (int i = 0; i < N / 2; ++i) x[i] = static_cast<float>(low[i]), x[i + N / 2] = static_cast<float>(high[i]);
  return x;
}

// c[0] + c[1] x + c[2] x² + …
template <int N, int Terms>
AOTPACK_VEC F64<N> polynomial(F64<N> x, const double (&c)[Terms]) {
  F64<N> sum = F64<N>{} + c[Terms - 1];
#pragma GCC unroll 16
  for (int i = Terms - 2; i >= 0; --i) sum = fma64<N>(sum, x, F64<N>{} + c[i]);
  return sum;
}

// f on every lane, for functions that are too rare to be worth a vector algorithm.
template <typename T, int N, typename F>
AOTPACK_VEC Pack<T, N> by_lane(Pack<T, N> x, F f) {
  T lanes[N];
  std::memcpy(lanes, &x.v, sizeof(lanes));
  for (int i = 0; i < N; ++i) lanes[i] = f(lanes[i]);
  std::memcpy(&x.v, lanes, sizeof(lanes));
  return x;
}

template <typename T, int N, typename F>
AOTPACK_VEC Pack<T, N> by_lane(Pack<T, N> x, Pack<T, N> y, F f) {
  T a[N], b[N];
  std::memcpy(a, &x.v, sizeof(a));
  std::memcpy(b, &y.v, sizeof(b));
  for (int i = 0; i < N; ++i) a[i] = f(a[i], b[i]);
  std::memcpy(&x.v, a, sizeof(a));
  return x;
}

// f, a function of doubles, on every lane of floats: as f's error is a small part of a float's ulp, rounding leaves
// little more than 0.5 ulp.
template <int N, typename F>
AOTPACK_VEC Pack<float, N> in_double(Pack<float, N> x, F f) {
  F64<N / 2> low, high;
  widen<N>(x.v, low, high);
  return {narrow<N>(f(low), f(high))};
}

template <int N, typename F>
AOTPACK_VEC Pack<float, N> in_double(Pack<float, N> x, Pack<float, N> y, F f) {
  F64<N / 2> xl, xh, yl, yh;
  widen<N>(x.v, xl, xh);
  widen<N>(y.v, yl, yh);
  return {narrow<N>(f(xl, yl), f(xh, yh))};
}

}  // namespace aotpack::vecmath
