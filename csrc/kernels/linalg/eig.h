// Eigenvalues and right eigenvectors of general matrices, as LAPACK's geev: balanced, to Hessenberg form, then
// the QR algorithm; vectors have the norm 1 and a real greatest element.
#pragma once

#include "kernels/linalg/eig_complex.h"
#include "kernels/linalg/eig_real.h"
#include "kernels/linalg/rotations.h"

namespace aotpack::linalg {

template <typename T>
int64_t eig_room(int64_t n) {
  return 3 * Arena::room<Real<T>>(n) + 3 * Arena::room<T>(n) + 2 * Arena::room<T>(n * n) + reflectors_room<T>(n, n);
}

// A (n x n, column-major) is lost; values: n; vectors: n x n, or no columns if not wanted. False where the iteration
// does not converge.
template <typename T>
bool eig(View<T> a, Complex<Real<T>>* values, View<Complex<Real<T>>> vectors, Arena arena) {
  using R = Real<T>;
  const int64_t n = a.rows;
  if (n == 0) return true;
  if (!all_finite(a)) return false;
  const R factor = scale_for(greatest_element(a));
  if (factor != R(1)) {
    for (int64_t j = 0; j < n; ++j) scale(n, factor, a.column(j));
  }
  R* scales = arena.take<R>(n);
  T *tau = arena.take<T>(n), *work = arena.take<T>(n);
  const Balance b = balance(a, scales);
  View<T> q{a.data, n, 0, 1, n};
  if (vectors.cols > 0) q = columns(arena.take<T>(n * n), n, n);
  hessenberg(a, b, q, tau, work, arena);
  if constexpr (is_complex<T>) {
    if (!detail::complex_qr(a, b, values, q)) return false;
    if (vectors.cols > 0) {
      detail::triangular_vectors(a, q, arena);
      balance_back(b, scales, q);
      detail::normalize(q, vectors);
    }
  } else {
    R *re = arena.take<R>(n), *im = arena.take<R>(n);
    if (!detail::real_qr(a, b, re, im, q)) return false;
    for (int64_t i = 0; i < n; ++i) values[i] = {re[i], im[i]};
    if (vectors.cols > 0) {
      detail::quasi_triangular_vectors(a, re, im, q, arena);
      balance_back(b, scales, q);
      detail::normalize(q, im, vectors);
    }
  }
  if (factor != R(1)) {
    for (int64_t i = 0; i < n; ++i) values[i] = values[i] / factor;
  }
  return true;
}

}  // namespace aotpack::linalg
