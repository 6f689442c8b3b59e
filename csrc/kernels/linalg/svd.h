// Singular values and vectors: to bidiagonal form by reflectors (LAPACK's gebd2), then Golub and Reinsch's
// iteration, "Singular value decomposition and least squares solutions" (1970), as LINPACK's svdc arranges it.
#pragma once

#include "kernels/linalg/householder.h"
#include "kernels/linalg/rotations.h"

namespace aotpack::linalg {

// Workspace for a matrix with `rows` >= `cols`.
template <typename T>
int64_t svd_room(int64_t rows, int64_t cols) {
  const int64_t n = cols;
  return 5 * Arena::room<Real<T>>(n) + 4 * Arena::room<T>(std::max(rows, n)) + 3 * Arena::room<T>(n * n) +
         Arena::room<T>(rows * n) + reflectors_room<T>(std::max<int64_t>(rows, 1), std::max<int64_t>(rows, 1));
}

namespace detail {

// A = Q B P^H with B real and upper bidiagonal; A holds the reflectors of Q, column k of `p` those of P from row k + 1.
template <typename T>
void bidiagonalize(View<T> a, View<T> p, Real<T>* d, Real<T>* e, T* tauq, T* taup, T* work) {
  const int64_t m = a.rows, n = a.cols;
  for (int64_t k = 0; k < n; ++k) {
    T* column = a.column(k) + k;
    tauq[k] = make_reflector(column[0], m - k - 1, column + 1);
    d[k] = real(column[0]);
    reflect(conj(tauq[k]), column + 1, a.block(k, k + 1, m - k, n - k - 1));
    e[k] = 0;
    taup[k] = T(0);
    if (k + 1 == n) break;
    T* row = p.column(k) + k + 1;
    for (int64_t j = k + 1; j < n; ++j) row[j - k - 1] = conj(a(k, j));
    taup[k] = make_reflector(row[0], n - k - 2, row + 1);
    e[k] = real(row[0]);
    reflect_right(taup[k], row + 1, a.block(k + 1, k + 1, m - k - 1, n - k - 1), work);
  }
}

// d (n), e (n, the last 0) become singular values, descending; u and v (0 columns: not wanted) are multiplied by the
// vectors. c, s: 2 n each. False where it does not converge.
template <typename T>
bool golub_reinsch(int64_t n, Real<T>* d, Real<T>* e, View<T> u, View<T> v, Real<T>* c, Real<T>* s) {
  using R = Real<T>;
  const R tiny = kTiny<R> / kEpsilon<R>, eps = kEpsilon<R>;
  const bool vectors = u.cols > 0 || v.cols > 0;
  int iteration = 0;
  for (int64_t p = n; p > 0;) {
    int64_t k = p - 2;
    for (; k >= 0; --k) {
      if (std::abs(e[k]) <= tiny + eps * (std::abs(d[k]) + std::abs(d[k + 1]))) {
        e[k] = 0;
        break;
      }
    }
    if (k == p - 2) {  // d[p - 1] is a singular value
      k = p - 1;
      if (d[k] < R(0)) {
        d[k] = -d[k];
        if (vectors) scale(v.rows, R(-1), v.column(k));
      }
      iteration = 0;
      --p;
      continue;
    }
    int64_t zero = p - 1;
    for (; zero > k; --zero) {
      const R around = (zero + 1 < p ? std::abs(e[zero]) : R(0)) + (zero != k + 1 ? std::abs(e[zero - 1]) : R(0));
      if (std::abs(d[zero]) <= tiny + eps * around) {
        d[zero] = 0;
        break;
      }
    }
    R cosine, sine;
    if (zero == p - 1 && zero > k) {  // a zero at the end: its column goes
      R f = e[p - 2];
      e[p - 2] = 0;
      for (int64_t j = p - 2; j > k; --j) {
        d[j] = make_rotation(d[j], f, cosine, sine);
        if (j != k + 1) {
          f = -sine * e[j - 1];
          e[j - 1] *= cosine;
        }
        if (vectors) rotate_pair(v, j, p - 1, cosine, -sine);
      }
      continue;
    }
    if (zero > k) {  // a zero inside: its row goes
      R f = e[zero];
      e[zero] = 0;
      for (int64_t j = zero + 1; j < p; ++j) {
        d[j] = make_rotation(d[j], f, cosine, sine);
        f = -sine * e[j];
        e[j] *= cosine;
        if (vectors) rotate_pair(u, j, zero, cosine, -sine);
      }
      continue;
    }
    if (++iteration > 120) return false;
    ++k;
    const R factor =
        std::max({std::abs(d[p - 1]), std::abs(d[p - 2]), std::abs(e[p - 2]), std::abs(d[k]), std::abs(e[k])});
    const R last = d[p - 1] / factor, before = d[p - 2] / factor, off = e[p - 2] / factor;
    const R first = d[k] / factor, next = e[k] / factor;
    const R b = ((before + last) * (before - last) + off * off) / 2, square = (last * off) * (last * off);
    R shift = 0;
    if (b != R(0) || square != R(0)) shift = square / (b + std::copysign(std::sqrt(b * b + square), b));
    R f = (first + last) * (first - last) + shift, g = first * next;
    R *cv = c, *sv = s, *cu = c + n, *su = s + n;
    for (int64_t j = k; j + 1 < p; ++j) {
      const R t = make_rotation(f, g, cosine, sine);
      if (j != k) e[j - 1] = t;
      f = cosine * d[j] + sine * e[j];
      e[j] = cosine * e[j] - sine * d[j];
      g = sine * d[j + 1];
      d[j + 1] *= cosine;
      cv[j] = cosine, sv[j] = -sine;
      d[j] = make_rotation(f, g, cosine, sine);
      f = cosine * e[j] + sine * d[j + 1];
      d[j + 1] = cosine * d[j + 1] - sine * e[j];
      g = sine * e[j + 1];
      e[j + 1] *= cosine;
      cu[j] = cosine, su[j] = -sine;
    }
    e[p - 2] = f;
    if (vectors) {
      rotate_columns(v.block(0, k, v.rows, p - k), p - 1 - k, cv + k, sv + k, false);
      rotate_columns(u.block(0, k, u.rows, p - k), p - 1 - k, cu + k, su + k, false);
    }
  }
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t greatest = std::max_element(d + i, d + n) - d;
    if (d[greatest] == d[i]) continue;
    std::swap(d[i], d[greatest]);
    if (!vectors) continue;
    std::swap_ranges(u.column(i), u.column(i) + u.rows, u.column(greatest));
    std::swap_ranges(v.column(i), v.column(i) + v.rows, v.column(greatest));
  }
  return true;
}

}  // namespace detail

// A = U diag(values) V^H of a column-major A with rows >= cols = n, which is lost. U has the first n or all columns, V
// is n x n; both column-major, and without columns if not wanted. False where the iteration does not converge, as for
// elements that are not finite.
template <typename T>
bool svd(View<T> a, View<T> u, View<T> v, Real<T>* values, Arena arena) {
  using R = Real<T>;
  const int64_t m = a.rows, n = a.cols;
  const bool vectors = u.cols > 0 || v.cols > 0;
  if (n == 0) {
    if (u.cols > 0) set_identity(u);
    return true;
  }
  if (!all_finite(a)) return false;
  const R factor = scale_for(greatest_element(a));
  if (factor != R(1)) {
    for (int64_t j = 0; j < n; ++j) scale(m, factor, a.column(j));
  }
  R *e = arena.take<R>(n), *c = arena.take<R>(2 * n), *s = arena.take<R>(2 * n);
  T *tauq = arena.take<T>(n), *taup = arena.take<T>(n), *work = arena.take<T>(m), *tau = arena.take<T>(n);
  const View<T> p = columns(arena.take<T>(n * n), n, n);
  // Where there are many more rows, the iteration is on R of a QR.
  const bool tall = m > n + n / 2;
  View<T> square = a, inner = u;
  if (tall) {
    qr_factor(a, tau, arena);
    square = columns(arena.take<T>(n * n), n, n);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < n; ++i) square(i, j) = i <= j ? a(i, j) : T(0);
    if (vectors) inner = columns(arena.take<T>(n * n), n, n);
  }
  detail::bidiagonalize(square, p, values, e, tauq, taup, work);
  if (vectors) {
    make_q(square.reading(), tauq, inner, arena);
    set_identity(v);
    if (n > 1) make_q(p.block(1, 0, n - 1, n - 1).reading(), taup, v.block(1, 1, n - 1, n - 1), arena);
  }
  const bool converged = detail::golub_reinsch(n, values, e, vectors ? inner : View<T>{a.data, 0, 0, 1, 1},
                                               vectors ? v : View<T>{a.data, 0, 0, 1, 1}, c, s);
  if (vectors && tall) {
    set_identity(u);
    copy(u.block(0, 0, n, n), inner);
    multiply_q(a.reading(), tau, false, u, arena);
  }
  if (factor != R(1)) {
    for (int64_t i = 0; i < n; ++i) values[i] /= factor;
  }
  return converged;
}

}  // namespace aotpack::linalg
