// What generated kernels use of the standard library and of c10 for single numbers.
#pragma once

#include <stdint.h>

#define C10_LIKELY(condition) __builtin_expect(static_cast<bool>(condition), 1)
#define C10_UNLIKELY(condition) __builtin_expect(static_cast<bool>(condition), 0)

namespace c10 {

template <typename To, typename From>
inline To convert(From x) {
  return static_cast<To>(x);
}

// Rounds down.
inline int64_t div_floor_integer(int64_t a, int64_t b) {
  if (C10_UNLIKELY(b == 0)) return 0;
  if (C10_UNLIKELY(a == INT64_MIN && b == -1)) return a;
  const int64_t quotient = a / b;
  return (a < 0) != (b < 0) && a % b != 0 ? quotient - 1 : quotient;
}

}  // namespace c10

// What is `std` where torch's header is included.
namespace aotpack_std {

#define AOTPACK_FUNCTION(name)                                  \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline double name(double x) { return __builtin_##name(x); }
AOTPACK_FUNCTION(sqrt)
AOTPACK_FUNCTION(exp)
AOTPACK_FUNCTION(expm1)
AOTPACK_FUNCTION(log)
AOTPACK_FUNCTION(log1p)
AOTPACK_FUNCTION(sin)
AOTPACK_FUNCTION(cos)
AOTPACK_FUNCTION(tanh)
AOTPACK_FUNCTION(erf)
#undef AOTPACK_FUNCTION

inline bool isnan(float x) { return x != x; }
inline bool isnan(double x) { return x != x; }

template <typename T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float infinity() { return __builtin_inff(); }
};
template <>
struct numeric_limits<double> {
  static constexpr double infinity() { return __builtin_inf(); }
};

template <typename T, decltype(sizeof(0)) N>
struct array {
  T elements[N];
  T* data() { return elements; }
  T& operator[](int64_t i) { return elements[i]; }
};

}  // namespace aotpack_std

template <typename T>
inline T max_propagate_nan(T a, T b) {
  return a != a ? a : a > b ? a : b;
}
template <typename T>
inline T min_propagate_nan(T a, T b) {
  return a != a ? a : a < b ? a : b;
}
