// Eigenvalues and -vectors of Hermitian matrices: to tridiagonal form by reflectors (LAPACK's hetd2), then the
// implicit QL algorithm (steqr; Dubrulle, Martin and Wilkinson, "The implicit QL algorithm", 1968).
#pragma once

#include "kernels/linalg/householder.h"
#include "kernels/linalg/rotations.h"

namespace aotpack::linalg {

template <typename T>
int64_t eigh_room(int64_t n) {
  return 3 * Arena::room<Real<T>>(n) + 2 * Arena::room<T>(n) + Arena::room<T>(n * n) + reflectors_room<T>(n, n);
}

namespace detail {

// A = Q T Q^H, by the lower triangle of A, which then holds the reflectors below the subdiagonal.
template <typename T>
void tridiagonalize(View<T> a, Real<T>* d, Real<T>* e, T* tau, T* work) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k < n; ++k) {
    d[k] = real(a(k, k));
    if (k + 1 == n) break;
    const int64_t m = n - k - 1;
    T* v = a.column(k) + k + 1;
    tau[k] = make_reflector(v[0], m - 1, v + 1);
    e[k] = real(v[0]);
    if (tau[k] == T(0)) continue;
    v[0] = T(1);
    // w = tau A v - (tau (tau A v)^H v / 2) v, of which A loses v w^H + w v^H.
    std::fill(work, work + m, T(0));
    for (int64_t j = 0; j < m; ++j) {
      const T* column = a.column(k + 1 + j) + k + 1;
      work[j] += v[j] * real(column[j]) + dot(m - j - 1, column + j + 1, v + j + 1);
      add_scaled(m - j - 1, v[j], column + j + 1, work + j + 1);
    }
    scale(m, tau[k], work);
    const T half = -(tau[k] * dot(m, work, v)) * Real<T>(0.5);
    add_scaled(m, half, v, work);
    for (int64_t j = 0; j < m; ++j) {
      T* column = a.column(k + 1 + j) + k + 1;
      const T left = conj(work[j]), right = conj(v[j]);
#pragma omp simd
      for (int64_t i = j; i < m; ++i) column[i] -= v[i] * left + work[i] * right;
    }
    v[0] = T(e[k]);
  }
}

// d becomes the eigenvalues, z := z times the eigenvectors. c and s: n each. False where it does not converge.
template <typename T>
bool implicit_ql(int64_t n, Real<T>* d, Real<T>* e, View<T> z, Real<T>* c, Real<T>* s) {
  using R = Real<T>;
  for (int64_t l = 0; l < n; ++l) {
    for (int iteration = 0;; ++iteration) {
      int64_t m = l;
      for (; m + 1 < n; ++m) {
        const R product = std::sqrt(std::abs(d[m])) * std::sqrt(std::abs(d[m + 1]));
        if (std::abs(e[m]) <= kEpsilon<R> * product + kTiny<R>) break;
      }
      if (m == l) break;
      if (iteration == 60) return false;
      const R g0 = (d[l + 1] - d[l]) / (2 * e[l]);
      R g = d[m] - d[l] + e[l] / (g0 + std::copysign(std::hypot(g0, R(1)), g0));
      R sine = 1, cosine = 1, p = 0;
      for (int64_t i = m - 1; i >= l; --i) {
        const R f = sine * e[i], b = cosine * e[i];
        R r = make_rotation(g, f, cosine, sine);
        if (i + 1 < m) e[i + 1] = r;
        g = d[i + 1] - p;
        r = (d[i] - g) * sine + 2 * cosine * b;
        p = sine * r;
        d[i + 1] = g + p;
        g = cosine * r - b;
        c[i] = cosine;
        s[i] = sine;
      }
      if (z.cols > 0) rotate_columns(z.block(0, l, z.rows, m - l + 1), m - l, c + l, s + l, true);
      d[l] -= p;
      e[l] = g;
      if (m + 1 < n) e[m] = 0;
    }
  }
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t least = std::min_element(d + i, d + n) - d;
    if (least == i) continue;
    std::swap(d[i], d[least]);
    if (z.cols > 0) std::swap_ranges(z.column(i), z.column(i) + z.rows, z.column(least));
  }
  return true;
}

}  // namespace detail

// The lower triangle of A (n x n, column-major) becomes the eigenvectors, if `vectors`, or is lost; values: n,
// ascending. False where the iteration does not converge, as for elements that are not finite.
template <typename T>
bool eigh(View<T> a, bool vectors, Real<T>* values, Arena arena) {
  using R = Real<T>;
  const int64_t n = a.rows;
  if (n == 0) return true;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < j; ++i) a(i, j) = T(0);
  if (!all_finite(a)) return false;
  const R factor = scale_for(greatest_element(a));
  if (factor != R(1)) {
    for (int64_t j = 0; j < n; ++j) scale(n, factor, a.column(j));
  }
  R *e = arena.take<R>(n), *c = arena.take<R>(n), *s = arena.take<R>(n);
  T *tau = arena.take<T>(n), *work = arena.take<T>(n);
  e[n - 1] = 0;
  detail::tridiagonalize(a, values, e, tau, work);
  View<T> z{a.data, n, 0, 1, a.cs};
  if (vectors) {
    z = columns(arena.take<T>(n * n), n, n);
    set_identity(z);
    if (n > 1) make_q(a.block(1, 0, n - 1, n - 1).reading(), tau, z.block(1, 1, n - 1, n - 1), arena);
  }
  const bool converged = detail::implicit_ql(n, values, e, z, c, s);
  if (vectors) copy(a, z);
  if (factor != R(1)) {
    for (int64_t i = 0; i < n; ++i) values[i] /= factor;
  }
  return converged;
}

}  // namespace aotpack::linalg
