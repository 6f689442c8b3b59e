// Takes the place of SLEEF's header of this name under torch's ATen/cpu/vec headers.
//
// Vectorised kernels that TorchInductor generates call Sleef_* through at::vec::Vectorized. Those symbols live in
// libtorch, which a compiled module must not need, so the build puts this folder first on the include path and every
// function becomes code of the module. Names keep their promise of accuracy: _u10 is within 1.0 ulp, _u15 1.5,
// _u35 3.5, _u05 0.501, for all arguments (lgamma: 1e-15 absolute where it passes 0 between negative integers).
//
// Widths: f4 d2 (128 bits, NEON), f8 d4 (256 bits, AVX2 with FMA), f16 d8 (512 bits, AVX-512), fx dx (SVE of 256 bits,
// without sincos). A unit that compiles torch's vectors has those of its CPU_CAPABILITY alone: compilers instantiate
// all that is defined here, used or not.
#pragma once

#include "detail/vecmath.h"

#define SLEEF_CONST __attribute__((const))

// `type` is what Sleef's names call vectors of `lanes` elements, `end` and `exact` what ends them: `exact` of functions
// without a bound.
#define AOTPACK_SLEEF_1(name, bound, type, end, exact, lanes, vector, element)            \
  SLEEF_CONST static inline vector Sleef_##name##type##bound##end(vector x) {             \
    return (vector)aotpack::vecmath::name(aotpack::vecmath::Pack<element, lanes>{(x)}).v; \
  }
#define AOTPACK_SLEEF_2(name, bound, type, end, exact, lanes, vector, element)          \
  SLEEF_CONST static inline vector Sleef_##name##type##bound##end(vector x, vector y) { \
    using P = aotpack::vecmath::Pack<element, lanes>;                                   \
    return (vector)aotpack::vecmath::name(P{(x)}, P{(y)}).v;                            \
  }
#define AOTPACK_SLEEF_EXACT(name, type, end, exact, lanes, vector, element) \
  AOTPACK_SLEEF_2(name, exact, type, , , lanes, vector, element)
#define AOTPACK_SLEEF_SINCOS(type, lanes, vector, element)                                     \
  SLEEF_CONST static inline Sleef_##vector##_2 Sleef_sincos##type##_u10(vector x) {            \
    using P = aotpack::vecmath::Pack<element, lanes>;                                          \
    return {(vector)aotpack::vecmath::sin(P{(x)}).v, (vector)aotpack::vecmath::cos(P{(x)}).v}; \
  }
#define AOTPACK_SLEEF_ALL(...)                \
  AOTPACK_SLEEF_1(exp, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(exp2, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(expm1, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(log, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(log2, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(log10, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(log1p, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(sin, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(cos, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(tan, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(sin, _u35, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(cos, _u35, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(tan, _u35, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(asin, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(acos, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(atan, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(sinh, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(cosh, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(tanh, _u10, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(asinh, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(acosh, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(atanh, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_1(erf, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_1(erfc, _u15, __VA_ARGS__)    \
  AOTPACK_SLEEF_1(lgamma, _u10, __VA_ARGS__)  \
  AOTPACK_SLEEF_2(pow, _u10, __VA_ARGS__)     \
  AOTPACK_SLEEF_2(atan2, _u10, __VA_ARGS__)   \
  AOTPACK_SLEEF_2(hypot, _u05, __VA_ARGS__)   \
  AOTPACK_SLEEF_EXACT(fmod, __VA_ARGS__)      \
  AOTPACK_SLEEF_EXACT(nextafter, __VA_ARGS__) \
  AOTPACK_SLEEF_EXACT(copysign, __VA_ARGS__)

#if defined(__aarch64__)
typedef struct {
  float32x4_t x, y;
} Sleef_float32x4_t_2;
typedef struct {
  float64x2_t x, y;
} Sleef_float64x2_t_2;
AOTPACK_SLEEF_ALL(f4, , , 4, float32x4_t, float)
AOTPACK_SLEEF_SINCOS(f4, 4, float32x4_t, float)
AOTPACK_SLEEF_ALL(d2, , , 2, float64x2_t, double)
AOTPACK_SLEEF_SINCOS(d2, 2, float64x2_t, double)
#if defined(AOTPACK_VECMATH_SVE256)
AOTPACK_SLEEF_ALL(fx, sve, _sve, 8, svfloat32_t, float)
AOTPACK_SLEEF_ALL(dx, sve, _sve, 4, svfloat64_t, double)
#endif
#elif defined(__FMA__)
#if !defined(CPU_CAPABILITY_AVX2) && !defined(CPU_CAPABILITY_AVX512)
typedef struct {
  __m128 x, y;
} Sleef___m128_2;
typedef struct {
  __m128d x, y;
} Sleef___m128d_2;
AOTPACK_SLEEF_ALL(f4, , , 4, __m128, float)
AOTPACK_SLEEF_SINCOS(f4, 4, __m128, float)
AOTPACK_SLEEF_ALL(d2, , , 2, __m128d, double)
AOTPACK_SLEEF_SINCOS(d2, 2, __m128d, double)
#endif
#if !defined(CPU_CAPABILITY_AVX512)
typedef struct {
  __m256 x, y;
} Sleef___m256_2;
typedef struct {
  __m256d x, y;
} Sleef___m256d_2;
AOTPACK_SLEEF_ALL(f8, , , 8, __m256, float)
AOTPACK_SLEEF_SINCOS(f8, 8, __m256, float)
AOTPACK_SLEEF_ALL(d4, , , 4, __m256d, double)
AOTPACK_SLEEF_SINCOS(d4, 4, __m256d, double)
#endif
#if defined(__AVX512F__) && !defined(CPU_CAPABILITY_AVX2)
typedef struct {
  __m512 x, y;
} Sleef___m512_2;
typedef struct {
  __m512d x, y;
} Sleef___m512d_2;
AOTPACK_SLEEF_ALL(f16, , , 16, __m512, float)
AOTPACK_SLEEF_SINCOS(f16, 16, __m512, float)
AOTPACK_SLEEF_ALL(d8, , , 8, __m512d, double)
AOTPACK_SLEEF_SINCOS(d8, 8, __m512d, double)
#endif
#endif

#undef AOTPACK_SLEEF_1
#undef AOTPACK_SLEEF_2
#undef AOTPACK_SLEEF_EXACT
#undef AOTPACK_SLEEF_SINCOS
#undef AOTPACK_SLEEF_ALL
