// lanes.h: functions that go lane by lane through libm.
//
// float goes through double and is then rounded, which leaves at most 0.5001 ulp. For double, where glibc's own error exceeds what the caller was
// promised, the wider long double does the same.
#pragma once

#include "pack.h"

namespace aotpack::vecmath {

using Wide = long double;

#define AOTPACK_LANES_1(name, wide)                                                                                  \
  template <int N>                                                                                                   \
  static inline Pack<float, N> name(Pack<float, N> x) {                                                              \
    return by_lane(x, [](float a) { return static_cast<float>(std::name(static_cast<double>(a))); });                \
  }                                                                                                                  \
  template <int N>                                                                                                   \
  static inline Pack<double, N> name(Pack<double, N> x) {                                                            \
    return by_lane(x, [](double a) { return static_cast<double>(std::name(static_cast<wide>(a))); });                \
  }
#define AOTPACK_LANES_2(name, through)                                                                               \
  template <int N>                                                                                                   \
  static inline Pack<float, N> name(Pack<float, N> x, Pack<float, N> y) {                                            \
    return by_lane(x, y, [](float a, float b) {                                                                      \
      return static_cast<float>(std::name(static_cast<through>(a), static_cast<through>(b)));                        \
    });                                                                                                              \
  }                                                                                                                  \
  template <int N>                                                                                                   \
  static inline Pack<double, N> name(Pack<double, N> x, Pack<double, N> y) {                                         \
    return by_lane(x, y, [](double a, double b) { return std::name(a, b); });                                        \
  }

AOTPACK_LANES_1(exp, double)
AOTPACK_LANES_1(exp2, double)
AOTPACK_LANES_1(expm1, double)
AOTPACK_LANES_1(log, double)
AOTPACK_LANES_1(log2, double)
AOTPACK_LANES_1(log10, Wide)
AOTPACK_LANES_1(log1p, double)
AOTPACK_LANES_1(sin, double)
AOTPACK_LANES_1(cos, double)
AOTPACK_LANES_1(tan, double)
AOTPACK_LANES_1(asin, double)
AOTPACK_LANES_1(acos, double)
AOTPACK_LANES_1(atan, double)
AOTPACK_LANES_1(sinh, Wide)
AOTPACK_LANES_1(cosh, Wide)
AOTPACK_LANES_1(tanh, Wide)
AOTPACK_LANES_1(asinh, Wide)
AOTPACK_LANES_1(acosh, Wide)
AOTPACK_LANES_1(atanh, Wide)
AOTPACK_LANES_1(erf, double)
AOTPACK_LANES_1(erfc, Wide)
AOTPACK_LANES_2(pow, double)
AOTPACK_LANES_2(atan2, double)
AOTPACK_LANES_2(fmod, float)
AOTPACK_LANES_2(nextafter, float)
AOTPACK_LANES_2(copysign, float)
AOTPACK_LANES_2(hypot, double)

// lgamma_r, because lgamma writes a global.
template <int N>
static inline Pack<float, N> lgamma(Pack<float, N> x) {
  return by_lane(x, [](float a) {
    int sign;
    return static_cast<float>(lgamma_r(static_cast<double>(a), &sign));
  });
}
template <int N>
static inline Pack<double, N> lgamma(Pack<double, N> x) {
  return by_lane(x, [](double a) {
    int sign;
    return static_cast<double>(lgammal_r(static_cast<Wide>(a), &sign));
  });
}

#undef AOTPACK_LANES_1
#undef AOTPACK_LANES_2

}  // namespace aotpack::vecmath
