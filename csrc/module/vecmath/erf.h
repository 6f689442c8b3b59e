// Erf of at::vec's vectors, near 0 too.
//
// Generated kernels call Vectorized<float>::erf(), whose formula (Abramowitz and Stegun, 7.1.26) is 1 minus something:
// off by up to 1.5e-7, it returns 0 for small arguments, where eager returns 1.13 x. The build calls this function
// instead (aotpack/export/torch_compat/inductor/functions.py).
#pragma once

#include <type_traits>

template <class V>
inline V aotpack_erf(const V& x) {
  const V far = x.erf();
  if constexpr (std::is_same_v<typename V::value_type, float>) {
    // erf(x) / x in x^2, to within 1.4e-9 of it for |x| < 0.5.
    const V square = x * x;
    V p = fmadd(V(4.7195055e-3f), square, V(-2.6757944e-2f));
    p = fmadd(p, square, V(1.1282834e-1f));
    p = fmadd(p, square, V(-3.7612608e-1f));
    p = fmadd(p, square, V(1.1283791f));
    return V::blendv(far, x * p, x.abs() < V(0.5f));
  } else {
    return far;
  }
}
