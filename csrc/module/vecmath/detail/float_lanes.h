// Functions of float lanes. exp and exp2 stay in float, the others go through double (core.h).
#pragma once

#include "core.h"

namespace aotpack::vecmath {

namespace detail {

// mantissa · 2^k for |k| <= 252, also where the result is subnormal: in two steps, of which only the second rounds.
template <int N>
AOTPACK_VEC F32<N> scale(F32<N> mantissa, I32<N> k) {
  const I32<N> half = k >> 1;
  return mantissa * bits<F32<N>>((half + 127) << 23) * bits<F32<N>>((k - half + 127) << 23);
}

inline constexpr float kRound = 0x1.8p23f;

template <int N>
AOTPACK_VEC I32<N> integer(F32<N> rounded) {
  return bits<I32<N>>(rounded) - 0x4b400000;  // the bits of kRound
}

template <int N>
AOTPACK_VEC F32<N> splat(float x) {
  return F32<N>{} + x;
}

template <int N>
AOTPACK_VEC F32<N> clamp(F32<N> x, float low, float high) {
  x = x < low ? splat<N>(low) : x;
  return x > high ? splat<N>(high) : x;
}

template <int N>
AOTPACK_VEC bool any(I32<N> mask) {
  int32_t lanes[N], result = 0;
  std::memcpy(lanes, &mask, sizeof(lanes));
  for (int i = 0; i < N; ++i) result |= lanes[i];
  return result != 0;
}

// `fast` where every lane is within the reduction's reach, else libm lane by lane.
template <int N, typename Fast, typename Slow>
AOTPACK_VEC Pack<float, N> trigonometric(Pack<float, N> x, Fast fast, Slow slow) {
  const F32<N> magnitude = bits<F32<N>>(bits<I32<N>>(x.v) & INT32_MAX);
  if (__builtin_expect(any<N>(magnitude > core::kTrigLimit), 0)) return by_lane(x, slow);
  return in_double(x, fast);
}

}  // namespace detail

#define AOTPACK_HALF constexpr int H = N / 2

// Cody and Waite's reduction, then a polynomial of degree 7 on [-ln2/2, ln2/2].
template <int N>
static inline Pack<float, N> exp(Pack<float, N> x) {
  using namespace detail;
  const F32<N> a = clamp<N>(x.v, -104.0f, 89.0f);
  const F32<N> rounded = fma32<N>(a, splat<N>(0x1.715476p+0f), splat<N>(kRound));
  const F32<N> k = rounded - kRound;
  F32<N> r = fma32<N>(k, splat<N>(-0x1.63p-1f), a);
  r = fma32<N>(k, splat<N>(0x1.bd0106p-13f), r);
  F32<N> q = fma32<N>(r, splat<N>(0x1.a124f2p-13f), splat<N>(0x1.6d4324p-10f));
  q = fma32<N>(r, q, splat<N>(0x1.1110e0p-7f));
  q = fma32<N>(r, q, splat<N>(0x1.5554eap-5f));
  q = fma32<N>(r, q, splat<N>(0x1.555556p-3f));
  q = fma32<N>(r, q, splat<N>(0.5f));
  return {scale<N>(fma32<N>(r * r, q, r) + 1.0f, integer<N>(rounded))};
}

template <int N>
static inline Pack<float, N> exp2(Pack<float, N> x) {
  using namespace detail;
  const F32<N> a = clamp<N>(x.v, -151.0f, 129.0f);
  const F32<N> rounded = a + kRound;
  const F32<N> r = a - (rounded - kRound);
  F32<N> q = fma32<N>(r, splat<N>(0x1.441388p-13f), splat<N>(0x1.5f0890p-10f));
  q = fma32<N>(r, q, splat<N>(0x1.3b2a54p-7f));
  q = fma32<N>(r, q, splat<N>(0x1.c6af6cp-5f));
  q = fma32<N>(r, q, splat<N>(0x1.ebfbe0p-3f));
  q = fma32<N>(r, q, splat<N>(0x1.62e430p-1f));
  return {scale<N>(fma32<N>(r, q, splat<N>(1.0f)), integer<N>(rounded))};
}

template <int N>
static inline Pack<float, N> expm1(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x,
                   [&](F64<H> a) { return core::with_sign<H>(core::expm1<H>(core::clamp<H>(a, -110.0, 110.0)), a); });
}

template <int N>
static inline Pack<float, N> log(Pack<float, N> x) {
  return in_double(x, [&](F64<N / 2> a) { return core::log<N / 2>(a); });
}

template <int N>
static inline Pack<float, N> log2(Pack<float, N> x) {
  return in_double(x, [&](F64<N / 2> a) { return core::log2<N / 2>(a); });
}

template <int N>
static inline Pack<float, N> log10(Pack<float, N> x) {
  return in_double(x, [&](F64<N / 2> a) { return core::log<N / 2>(a) * 0x1.bcb7b1526e50ep-2; });
}

template <int N>
static inline Pack<float, N> log1p(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> y = core::log1p<H>(a);
    return a == 0.0 ? a : y;  // log1p(-0) is -0
  });
}

template <int N>
static inline Pack<float, N> sin(Pack<float, N> x) {
  AOTPACK_HALF;
  auto fast = [&](F64<H> a) {
    F64<H> s, c;
    core::sincos<H>(a, s, c);
    return a == 0.0 ? a : s;
  };
  return detail::trigonometric(x, fast, [&](float a) { return static_cast<float>(std::sin(static_cast<double>(a))); });
}

template <int N>
static inline Pack<float, N> cos(Pack<float, N> x) {
  AOTPACK_HALF;
  auto fast = [&](F64<H> a) {
    F64<H> s, c;
    core::sincos<H>(a, s, c);
    return c;
  };
  return detail::trigonometric(x, fast, [&](float a) { return static_cast<float>(std::cos(static_cast<double>(a))); });
}

template <int N>
static inline Pack<float, N> tan(Pack<float, N> x) {
  AOTPACK_HALF;
  auto fast = [&](F64<H> a) {
    F64<H> s, c;
    core::sincos<H>(a, s, c);
    return a == 0.0 ? a : s / c;
  };
  return detail::trigonometric(x, fast, [&](float a) { return static_cast<float>(std::tan(static_cast<double>(a))); });
}

template <int N>
static inline Pack<float, N> atan2(Pack<float, N> y, Pack<float, N> x) {
  return in_double(y, x, [&](F64<N / 2> a, F64<N / 2> b) { return core::atan2<N / 2>(a, b); });
}

template <int N>
static inline Pack<float, N> atan(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) { return core::atan2<H>(a, core::splat<H>(1.0)); });
}

template <int N>
static inline Pack<float, N> asin(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) { return core::atan2<H>(a, sqrt64<H>((1.0 - a) * (1.0 + a))); });
}

template <int N>
static inline Pack<float, N> acos(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) { return core::atan2<H>(sqrt64<H>((1.0 - a) * (1.0 + a)), a); });
}

template <int N>
static inline Pack<float, N> tanh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> e = core::expm1<H>(core::clamp<H>(2.0 * a, -40.0, 40.0));
    return core::with_sign<H>(e / (e + 2.0), a);
  });
}

template <int N>
static inline Pack<float, N> sinh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> e = core::expm1<H>(core::clamp<H>(core::absolute<H>(a), 0.0, 110.0));
    return core::with_sign<H>(0.5 * (e + e / (e + 1.0)), a);
  });
}

template <int N>
static inline Pack<float, N> cosh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> e = core::exp<H>(core::clamp<H>(core::absolute<H>(a), 0.0, 110.0));
    return 0.5 * (e + 1.0 / e);
  });
}

template <int N>
static inline Pack<float, N> asinh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> b = core::absolute<H>(a);
    const F64<H> y = core::log1p<H>(b + b * b / (1.0 + sqrt64<H>(b * b + 1.0)));
    return core::with_sign<H>(b == core::kInfinity ? b : y, a);
  });
}

template <int N>
static inline Pack<float, N> acosh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> t = a - 1.0;
    const F64<H> y = core::log1p<H>(t + sqrt64<H>(t * (t + 2.0)));
    return t >= 0.0 ? y : core::splat<H>(core::kNaN);
  });
}

template <int N>
static inline Pack<float, N> atanh(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> b = core::absolute<H>(a);
    return core::with_sign<H>(0.5 * core::log1p<H>(2.0 * b / (1.0 - b)), a);
  });
}

// Below 1 by a polynomial, above by 1 - e^p(a), where p approximates log(erfc) on [1, 4] and erf is 1 in float from
// there on.
template <int N>
static inline Pack<float, N> erf(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    constexpr double c[] = {0x1.20dd7504045d6p+0,  -0x1.81274665754c3p-2, 0x1.ce2f08fec14fcp-4,
                            -0x1.b829c897922e3p-6, 0x1.562a60ddba6d0p-8,  -0x1.bccf664d7f680p-11,
                            0x1.d887505de36f2p-14, -0x1.445f47d33ce77p-17};
    constexpr double p[] = {0x1.4fb06741d39a1p-12, -0x1.2156fa777dfb0p+0,  -0x1.437eb4486a325p-1,
                            -0x1.c2e355434c642p-4, 0x1.b0e246c451d48p-6,   -0x1.37ecc66bf73f2p-8,
                            0x1.38e5e5277d407p-11, -0x1.825ce4bea3989p-15, 0x1.b7783044b6881p-20};
    const F64<H> b = core::absolute<H>(a);
    const F64<H> near = b * polynomial<H>(b * b, c);
    const F64<H> far = 1.0 - core::exp<H>(polynomial<H>(core::clamp<H>(b, 0.0, 4.0), p));
    return core::with_sign<H>(b < 1.0 ? near : far, a);
  });
}

template <int N>
static inline Pack<float, N> erfc(Pack<float, N> x) {
  AOTPACK_HALF;
  return in_double(x, [&](F64<H> a) {
    const F64<H> y = core::erfc_positive<H>(core::absolute<H>(a));
    return a < 0.0 ? 2.0 - y : y;
  });
}

template <int N>
static inline Pack<float, N> pow(Pack<float, N> x, Pack<float, N> y) {
  AOTPACK_HALF;
  return in_double(x, y, [&](F64<H> a, F64<H> b) {
    using core::kInfinity;
    const F64<H> one = core::splat<H>(1.0);
    const F64<H> magnitude = core::absolute<H>(a);
    F64<H> power = core::exp2<H>(core::clamp<H>(b * core::log2<H>(magnitude), -300.0, 300.0));
    // For |b| of 2^24 or more every float is an even integer.
    const F64<H> size = core::absolute<H>(b);
    const F64<H> rounded = core::clamp<H>(size, 0.0, 0x1p25) + core::kRound;
    const I64<H> whole = (rounded - core::kRound == size) | (size >= 0x1p24);
    const I64<H> odd = (whole & (size < 0x1p24) & ((bits<I64<H>>(rounded) & 1) != 0)) != 0;
    const I64<H> negative = bits<I64<H>>(a) < 0;
    power = bits<F64<H>>(bits<I64<H>>(power) | (negative & odd & INT64_MIN));
    power = ((a < 0.0) & (a != -kInfinity) & ~whole) ? core::splat<H>(core::kNaN) : power;
    power = ((magnitude == 1.0) & (size == kInfinity)) ? one : power;
    power = ((a != a) | (b != b)) ? a + b : power;
    return ((a == 1.0) | (b == 0.0)) ? one : power;
  });
}

// Within 0.5001 ulp: squares of floats are exact in double.
template <int N>
static inline Pack<float, N> hypot(Pack<float, N> x, Pack<float, N> y) {
  AOTPACK_HALF;
  return in_double(x, y, [&](F64<H> a, F64<H> b) {
    const F64<H> root = sqrt64<H>(a * a + b * b);
    const auto infinite = (core::absolute<H>(a) == core::kInfinity) | (core::absolute<H>(b) == core::kInfinity);
    return infinite ? core::splat<H>(core::kInfinity) : root;
  });
}

#undef AOTPACK_HALF

}  // namespace aotpack::vecmath
