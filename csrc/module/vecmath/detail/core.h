// Elementary functions of double lanes that are exact to about 2^-30, a sixty-fourth of a float's ulp.
//
// They serve float alone, so arguments lie within float's range or a product of two such. Coefficients are Chebyshev
// fits of the stated function and interval.
#pragma once

#include "pack.h"

namespace aotpack::vecmath::core {

inline constexpr double kInfinity = __builtin_inf();
inline constexpr double kNaN = __builtin_nan("");
inline constexpr double kLog2E = 0x1.71547652b82fep+0, kLn2 = 0x1.62e42fefa39efp-1;
// Adding this rounds to an integer and leaves it in the low bits.
inline constexpr double kRound = 0x1.8p52;
inline constexpr double kHalfPi = 0x1.921fb54442d18p+0;

template <int N>
AOTPACK_VEC F64<N> splat(double x) {
  return F64<N>{} + x;
}
template <int N>
AOTPACK_VEC F64<N> absolute(F64<N> x) {
  return bits<F64<N>>(bits<I64<N>>(x) & INT64_MAX);
}
template <int N>
AOTPACK_VEC F64<N> with_sign(F64<N> x, F64<N> sign) {
  return bits<F64<N>>(bits<I64<N>>(x) | (bits<I64<N>>(sign) & INT64_MIN));
}
// Keeps NaN.
template <int N>
AOTPACK_VEC F64<N> clamp(F64<N> x, double low, double high) {
  x = x < low ? splat<N>(low) : x;
  return x > high ? splat<N>(high) : x;
}

// 2^k for the integer in the low bits of `rounded` = k + kRound.
template <int N>
AOTPACK_VEC F64<N> power_of_two(F64<N> rounded) {
  return bits<F64<N>>((bits<I64<N>>(rounded) + 1023) << 52);
}

// e^r - 1 on [-ln2/2, ln2/2].
template <int N>
AOTPACK_VEC F64<N> expm1_small(F64<N> r) {
  constexpr double c[] = {0x1.0000000b9129bp-1, 0x1.5555555a78ed4p-3,  0x1.5554e9063586ep-5,
                          0x1.1110e0f238322p-7, 0x1.6d43246b523b4p-10, 0x1.a124f19fe89acp-13};
  return fma64<N>(r * r, polynomial<N>(r, c), r);
}

// 2^x; |x| < 1000.
template <int N>
AOTPACK_VEC F64<N> exp2(F64<N> x) {
  const F64<N> rounded = x + kRound;
  const F64<N> scale = power_of_two<N>(rounded);
  return fma64<N>(scale, expm1_small<N>((x - (rounded - kRound)) * kLn2), scale);
}

// e^x; |x| < 690.
template <int N>
AOTPACK_VEC F64<N> exp(F64<N> x) {
  const F64<N> rounded = fma64<N>(x, splat<N>(kLog2E), splat<N>(kRound));
  const F64<N> scale = power_of_two<N>(rounded);
  return fma64<N>(scale, expm1_small<N>(fma64<N>(rounded - kRound, splat<N>(-kLn2), x)), scale);
}

// e^x - 1, exact relative to the result also near 0; |x| < 690.
template <int N>
AOTPACK_VEC F64<N> expm1(F64<N> x) {
  const F64<N> rounded = fma64<N>(x, splat<N>(kLog2E), splat<N>(kRound));
  const F64<N> scale = power_of_two<N>(rounded);
  return fma64<N>(scale, expm1_small<N>(fma64<N>(rounded - kRound, splat<N>(-kLn2), x)), scale - 1.0);
}

// log(m) = s (2 + s² L(s²)) with s = (m - 1) / (m + 1), given f = m - 1 and m in [√½, √2].
template <int N>
AOTPACK_VEC F64<N> log_near_one(F64<N> f) {
  constexpr double c[] = {0x1.5555555564eb7p-1, 0x1.999998cae671fp-2, 0x1.249323f5fe0afp-2, 0x1.c67ad1801094dp-3,
                          0x1.8c8cb725e67d1p-3};
  const F64<N> s = f / (f + 2.0);
  const F64<N> z = s * s;
  return s * fma64<N>(z, polynomial<N>(z, c), splat<N>(2.0));
}

// x = 2^e · m, m in [√½, √2), of a positive normal x.
template <int N>
AOTPACK_VEC void split(F64<N> x, F64<N>& e, F64<N>& m) {
  constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  const I64<N> biased = bits<I64<N>>(bits<U64<N>>(bits<I64<N>>(x) + (kOne - kSqrtHalf)) >> 52);
  m = bits<F64<N>>(bits<I64<N>>(x) - ((biased - 1023) << 52));
  // The exponent as a double, without an instruction that AVX2 lacks: put into the mantissa of 2^52.
  e = bits<F64<N>>(biased | 0x4330000000000000) - (0x1p52 + 1023);
}

// What log gives where x is not positive and finite.
template <int N>
AOTPACK_VEC F64<N> log_edges(F64<N> x, F64<N> log) {
  log = x == kInfinity ? x : log;
  log = x == 0.0 ? splat<N>(-kInfinity) : log;
  return x >= 0.0 ? log : splat<N>(kNaN);
}

template <int N>
AOTPACK_VEC F64<N> log(F64<N> x) {
  F64<N> e, m;
  split<N>(x, e, m);
  return log_edges<N>(x, fma64<N>(e, splat<N>(kLn2), log_near_one<N>(m - 1.0)));
}

template <int N>
AOTPACK_VEC F64<N> log2(F64<N> x) {
  F64<N> e, m;
  split<N>(x, e, m);
  return log_edges<N>(x, fma64<N>(log_near_one<N>(m - 1.0), splat<N>(kLog2E), e));
}

// log(1 + x), exact relative to the result also near 0.
template <int N>
AOTPACK_VEC F64<N> log1p(F64<N> x) {
  F64<N> e, m;
  const F64<N> y = x + 1.0;
  split<N>(y, e, m);
  const F64<N> f = e == 0.0 ? x : m - 1.0;
  return log_edges<N>(y, fma64<N>(e, splat<N>(kLn2), log_near_one<N>(f)));
}

// sin and cos of x; |x| <= kTrigLimit.
inline constexpr float kTrigLimit = 0x1p20f;
template <int N>
AOTPACK_VEC void sincos(F64<N> x, F64<N>& sine, F64<N>& cosine) {
  constexpr double s[] = {-0x1.555555545d0dap-3, 0x1.11110decc73fdp-7, -0x1.a013a455bd211p-13, 0x1.6dbcfb4dee3dcp-19};
  constexpr double c[] = {0x1.55555555027adp-5, -0x1.6c16bf534c9ebp-10, 0x1.a015c25366931p-16, -0x1.25239a9550aa1p-22};
  // π/2 in parts of 33, 33 and 53 bits: their products with an integer of 20 bits are exact, so nothing hinges on fma.
  const F64<N> rounded = fma64<N>(x, splat<N>(0x1.45f306dc9c883p-1), splat<N>(kRound));
  const F64<N> k = rounded - kRound;
  F64<N> r = x - k * 0x1.921fb544p+0;
  r = r - k * 0x1.0b4611a6p-34;
  r = r - k * 0x1.3198a2e037073p-69;
  const F64<N> z = r * r;
  const F64<N> sin_r = fma64<N>(r * z, polynomial<N>(z, s), r);
  const F64<N> cos_r = fma64<N>(z * z, polynomial<N>(z, c), fma64<N>(z, splat<N>(-0.5), splat<N>(1.0)));
  const I64<N> quadrant = bits<I64<N>>(rounded);
  const I64<N> odd = (quadrant & 1) != 0;
  sine = bits<F64<N>>(bits<I64<N>>(odd ? cos_r : sin_r) ^ ((quadrant & 2) << 62));
  cosine = bits<F64<N>>(bits<I64<N>>(odd ? sin_r : cos_r) ^ (((quadrant + 1) & 2) << 62));
}

// atan(y / x) in the right quadrant, signed zeros and infinities as C has them.
template <int N>
AOTPACK_VEC F64<N> atan2(F64<N> y, F64<N> x) {
  constexpr double c[] = {0x1.ffffffff64898p-1, -0x1.555553f671b9ap-2, 0x1.999914dc909cdp-3, -0x1.2488519fa5a4ep-3,
                          0x1.c6533dfc9a693p-4, -0x1.6f95036b2cf51p-4, 0x1.2811fdeff669cp-4, -0x1.ba035c4e8b66ep-5,
                          0x1.151ab904c6f2cp-5, -0x1.0354cc23b5530p-6, 0x1.3625e8d6ea1b9p-8, -0x1.5bcf6e573a47ap-11};
  const F64<N> ax = absolute<N>(x), ay = absolute<N>(y);
  const auto steep = ay > ax;
  const F64<N> numerator = steep ? ax : ay, denominator = steep ? ay : ax;
  F64<N> q = numerator / denominator;
  q = denominator == 0.0 ? splat<N>(0.0) : q;  // atan2(±0, ±0)
  q = ((ax == kInfinity) & (ay == kInfinity)) ? splat<N>(1.0) : q;
  F64<N> angle = q * polynomial<N>(q * q, c);
  angle = steep ? kHalfPi - angle : angle;
  angle = bits<I64<N>>(x) < 0 ? 2 * kHalfPi - angle : angle;
  angle = with_sign<N>(angle, y);
  return ((x == x) & (y == y)) ? angle : splat<N>(kNaN);
}

// 1 - erf(a) for a >= 0: e^(-a²) R((a - 2) / (a + 2)) / (1 + 2a), R fitted for a in [0, 10.1].
template <int N>
AOTPACK_VEC F64<N> erfc_positive(F64<N> a) {
  constexpr double c[] = {0x1.46e80e230e50dp+0,   -0x1.7bf5ed03cb527p-4,  -0x1.5407c17e5b820p-3, 0x1.4ffa2f92b1ea5p-3,
                          -0x1.bc2a7e8467d24p-5,  -0x1.074cbea02ee20p-7,  0x1.1da9a7b8e1a54p-7,  0x1.4e3b82e93ef9cp-10,
                          -0x1.7865165f7976cp-10, -0x1.d912932c1df65p-12, 0x1.5dcc612b1de5fp-13, 0x1.fc560b7cf3400p-14,
                          0x1.52481f3e53ff5p-16};
  a = a > 10.1 ? splat<N>(10.1) : a;  // there the result is 0 in float
  const F64<N> tail = 2.0 * a + 1.0, sum = a + 2.0;
  const F64<N> inverse = 1.0 / (tail * sum);
  const F64<N> t = (a - 2.0) * inverse * tail;
  return exp<N>(-a * a) * (polynomial<N>(t, c) * (inverse * sum));
}

}  // namespace aotpack::vecmath::core
