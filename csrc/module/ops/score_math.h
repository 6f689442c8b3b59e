// What score functions compute with: torch's operators on single numbers, written so that compilers make vectors of
// loops over them where that is possible.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/score_rules.h"
#include "ops/flex_attention.h"

namespace aotpack::score {

using kernels::bf16;
using kernels::f16;
using kernels::ScoreRow;

// Integers wrap around; bools add to an or.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
inline T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a | b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  else
    return a + b;
}
template <class T>
inline T sub(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
  else
    return a - b;
}
template <class T>
inline T mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a & b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  else
    return a * b;
}
template <class T>
inline T neg(T a) {
  if constexpr (std::is_integral_v<T>)
    return sub(T(0), a);
  else
    return -a;
}
template <class T>
inline T div(T a, T b) {
  return a / b;
}
template <class T>
inline T maximum(T a, T b) {
  return a != a ? a : (a > b ? a : b);
}
template <class T>
inline T minimum(T a, T b) {
  return a != a ? a : (a < b ? a : b);
}
template <class T>
inline T abs(T a) {
  if constexpr (std::is_unsigned_v<T>)
    return a;
  else if constexpr (std::is_integral_v<T>)
    return a < 0 ? neg(a) : a;
  else
    return std::fabs(a);
}
template <class T>
inline T sign(T a) {
  return static_cast<T>((a > T(0)) - (a < T(0)));
}
template <class T>
inline T square(T a) {
  return mul(a, a);
}

// Division of integers; `bad` becomes true where it is by 0.
template <class T>
inline T trunc_divide(T a, T b, int& bad) {
  if constexpr (std::is_integral_v<T>) {
    bad |= b == 0;
    const T by = b == 0 ? T(1) : b;
    if constexpr (std::is_signed_v<T>)
      return by == T(-1) ? neg(a) : static_cast<T>(a / by);
    else
      return static_cast<T>(a / by);
  } else {
    return std::trunc(a / b);
  }
}
template <class T>
inline T remainder(T a, T b, int& bad) {
  if constexpr (std::is_integral_v<T>) {
    const T left = sub(a, mul(trunc_divide(a, b, bad), b));
    return left != 0 && (left < 0) != (b < 0) ? add(left, b) : left;
  } else {
    const T left = std::fmod(a, b);
    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
  }
}
template <class T>
inline T floor_divide(T a, T b, int& bad) {
  if constexpr (std::is_integral_v<T>) {
    const T whole = trunc_divide(a, b, bad), left = sub(a, mul(whole, b));
    return left != 0 && (left < 0) != (b < 0) ? sub(whole, T(1)) : whole;
  } else {
    if (b == 0) return a / b;
    const T left = std::fmod(a, b);
    T whole = (a - left) / b;
    if (left != 0 && (b < 0) != (left < 0)) whole -= 1;
    if (whole == 0) return std::copysign(T(0), a / b);
    const T down = std::floor(whole);
    return whole - down > T(0.5) ? down + 1 : down;
  }
}

template <class T>
inline T bit_not(T a) {
  if constexpr (std::is_same_v<T, bool>)
    return !a;
  else
    return static_cast<T>(~a);
}

// As kernels/simd.h has them, for a single float without branches.
struct Reduced {
  int32_t n;
  float r;
};
inline Reduced reduce_ln2(float x) {
  const float shifter = 12582912.0f;
  const float shifted = x * 1.44269504f + shifter;
  const float n = shifted - shifter;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(shifter), r};
}
inline float exp_tail(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * (r * r);
}
inline float power_of_two(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

inline double exp(double x) { return std::exp(x); }
inline float exp(float x) {
  const float high = x > 89.0f ? 89.0f : x;
  const Reduced d = reduce_ln2(high < -104.0f ? -104.0f : high);
  const int32_t half = d.n >> 1;
  return (exp_tail(d.r) + d.r + 1.0f) * power_of_two(half) * power_of_two(d.n - half);
}
inline double tanh(double x) { return std::tanh(x); }
inline float tanh(float x) {
  const float twice = 2.0f * std::fabs(x);
  const Reduced d = reduce_ln2(twice > 20.0f ? 20.0f : twice);
  const float scale = power_of_two(d.n);
  const float e = (exp_tail(d.r) + d.r) * scale + (scale - 1.0f);
  return std::copysign(e / (e + 2.0f), x);
}
template <class T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
template <class T>
inline T rsqrt(T x) {
  return T(1) / std::sqrt(x);
}
template <class T>
inline T reciprocal(T x) {
  return T(1) / x;
}

using std::ceil, std::cos, std::erf, std::exp2, std::expm1, std::floor, std::log, std::log1p, std::log2, std::pow,
    std::sin, std::sqrt, std::trunc;
template <class T>
inline T round(T x) {
  return std::nearbyint(x);
}

// Halves are computed with as floats, and rounded after each operator.
template <class H>
inline float rounded(float x) {
  H half;
  kernels::from_float(x, &half);
  return kernels::to_float(half);
}

// From element to element of an operand along one of its dims.
inline int64_t stride(const ScoreRow& row, int operand, int dim) { return row.operands[operand].strides[dim]; }

// The index of an element of a dim; `bad` becomes true where it is none.
inline int64_t place(int64_t index, int64_t size, int& bad) {
  const int64_t wrapped = index < 0 ? index + size : index;
  const bool outside = wrapped < 0 || wrapped >= size;
  bad |= outside;
  return outside ? 0 : wrapped;
}

}  // namespace aotpack::score
