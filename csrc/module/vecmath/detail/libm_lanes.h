// Functions that go lane by lane through libm: those of double, and the rare ones of float.
//
// Where glibc's own error exceeds what the caller was promised, the next wider type does the work and its result is
// rounded.
#pragma once

#include "pack.h"

namespace aotpack::vecmath {

#define AOTPACK_DOUBLE_LANES(name, wide)                                                               \
  template <int N>                                                                                     \
  static inline Pack<double, N> name(Pack<double, N> x) {                                              \
    return by_lane(x, [&](double a) { return static_cast<double>(std::name(static_cast<wide>(a))); }); \
  }
#define AOTPACK_DOUBLE_LANES_2(name, wide)                                               \
  template <int N>                                                                       \
  static inline Pack<double, N> name(Pack<double, N> x, Pack<double, N> y) {             \
    return by_lane(x, y, [&](double a, double b) {                                       \
      return static_cast<double>(std::name(static_cast<wide>(a), static_cast<wide>(b))); \
    });                                                                                  \
  }
#define AOTPACK_EXACT_LANES_2(name)                                                  \
  template <typename T, int N>                                                       \
  static inline Pack<T, N> name(Pack<T, N> x, Pack<T, N> y) {                        \
    return by_lane(x, y, [&](T a, T b) { return static_cast<T>(std::name(a, b)); }); \
  }

AOTPACK_DOUBLE_LANES(exp, double)
AOTPACK_DOUBLE_LANES(exp2, double)
AOTPACK_DOUBLE_LANES(expm1, double)
AOTPACK_DOUBLE_LANES(log, double)
AOTPACK_DOUBLE_LANES(log2, double)
AOTPACK_DOUBLE_LANES(log10, long double)
AOTPACK_DOUBLE_LANES(log1p, double)
AOTPACK_DOUBLE_LANES(sin, double)
AOTPACK_DOUBLE_LANES(cos, double)
AOTPACK_DOUBLE_LANES(tan, double)
AOTPACK_DOUBLE_LANES(asin, double)
AOTPACK_DOUBLE_LANES(acos, double)
AOTPACK_DOUBLE_LANES(atan, double)
AOTPACK_DOUBLE_LANES(sinh, long double)
AOTPACK_DOUBLE_LANES(cosh, long double)
AOTPACK_DOUBLE_LANES(tanh, long double)
AOTPACK_DOUBLE_LANES(asinh, long double)
AOTPACK_DOUBLE_LANES(acosh, long double)
AOTPACK_DOUBLE_LANES(atanh, long double)
AOTPACK_DOUBLE_LANES(erf, long double)
AOTPACK_DOUBLE_LANES(erfc, long double)
AOTPACK_DOUBLE_LANES_2(pow, double)
AOTPACK_DOUBLE_LANES_2(atan2, double)
AOTPACK_DOUBLE_LANES_2(hypot, long double)
AOTPACK_EXACT_LANES_2(fmod)
AOTPACK_EXACT_LANES_2(nextafter)
AOTPACK_EXACT_LANES_2(copysign)

// lgamma_r, because lgamma writes a global.
template <int N>
static inline Pack<float, N> lgamma(Pack<float, N> x) {
  return by_lane(x, [&](float a) {
    int sign;
    return static_cast<float>(lgamma_r(static_cast<double>(a), &sign));
  });
}
template <int N>
static inline Pack<double, N> lgamma(Pack<double, N> x) {
  return by_lane(x, [&](double a) {
    int sign;
    return static_cast<double>(lgammal_r(static_cast<long double>(a), &sign));
  });
}

#undef AOTPACK_DOUBLE_LANES
#undef AOTPACK_DOUBLE_LANES_2
#undef AOTPACK_EXACT_LANES_2

}  // namespace aotpack::vecmath
