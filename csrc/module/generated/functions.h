// Elementary functions of vectors of floats, for the kernels that call any: they come with the compiler's intrinsics,
// which take it a third of a second to read.
#pragma once

#include "kernel.h"

#if defined(AOTPACK_OWN_VECTORS)
#include "vecmath/detail/vecmath.h"
#include "vectors.h"

namespace at::vec {

namespace functions = aotpack::vecmath;

#define AOTPACK_FUNCTION(name)                                                           \
  template <>                                                                            \
  inline Vectorized<float> Vectorized<float>::name() const {                             \
    return functions::name(functions::Pack<float, own::Lanes<float>::kCount>{values}).v; \
  }
AOTPACK_FUNCTION(exp)
AOTPACK_FUNCTION(expm1)
AOTPACK_FUNCTION(log)
AOTPACK_FUNCTION(log1p)
AOTPACK_FUNCTION(sin)
AOTPACK_FUNCTION(cos)
AOTPACK_FUNCTION(tanh)
#undef AOTPACK_FUNCTION

inline own::Vector<float> square_root(own::Vector<float> x) {
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_sqrt_ps(x);
#else
  return _mm256_sqrt_ps(x);
#endif
}
template <>
inline Vectorized<float> Vectorized<float>::sqrt() const {
  return square_root(values);
}
template <>
inline Vectorized<float> Vectorized<float>::rsqrt() const {
  return 1.0f / square_root(values);
}

}  // namespace at::vec

// Abramowitz and Stegun, 7.1.26, as at::vec computes it, and near 0 as vecmath/erf.h does.
inline at::vec::Vectorized<float> aotpack_erf(at::vec::Vectorized<float> x) {
  namespace own = aotpack::generated;
  using V = at::vec::Vectorized<float>;
  using Lanes = own::Vector<float>;
  const auto fma = [](Lanes a, Lanes b, Lanes c) {
    return Lanes(aotpack::vecmath::fma32<own::Lanes<float>::kCount>(a, b, c));
  };
  const auto all = [](float value) { return V(value).values; };
  const Lanes t = 1.0f / fma(all(0.3275911f), x.abs().values, all(1.0f));
  Lanes r = fma(all(1.061405429f), t, all(-1.453152027f));
  r = fma(r, t, all(1.421413741f));
  r = fma(r, t, all(-0.284496736f));
  r = fma(r, t, all(0.254829592f));
  const V power = V((x * x).neg()).exp().neg();
  const V far = V(fma(power.values * t, r, all(1.0f))) ^ (V(-0.0f) & x);
  const Lanes square = x.values * x.values;
  Lanes p = fma(all(4.7195055e-3f), square, all(-2.6757944e-2f));
  p = fma(p, square, all(1.1282834e-1f));
  p = fma(p, square, all(-3.7612608e-1f));
  p = fma(p, square, all(1.1283791f));
  return V::blendv(far, x * V(p), x.abs() < V(0.5f));
}
#endif
