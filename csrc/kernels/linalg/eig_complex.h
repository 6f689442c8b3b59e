// The single-shift QR algorithm and the vectors of triangular matrices (LAPACK's lahqr, trevc).
#pragma once

#include "kernels/linalg/hessenberg.h"

namespace aotpack::linalg::detail {

// The eigenvalue of the last 2 x 2 block that is nearer to its last element, as lahqr finds it.
template <typename T>
T wilkinson_shift(View<T> h, int64_t i) {
  using R = Real<T>;
  T t = h(i, i);
  const T u = square_root(h(i - 1, i)) * square_root(h(i, i - 1));
  R s = abs1(u);
  if (s == R(0)) return t;
  const T x = (h(i - 1, i - 1) - t) * R(0.5);
  const R sx = abs1(x);
  s = std::max(s, sx);
  T y = square_root((x / s) * (x / s) + (u / s) * (u / s)) * s;
  if (sx > R(0)) {
    const T direction = x / sx;
    if (direction.re * y.re + direction.im * y.im < R(0)) y = -y;
  }
  return t - u * (u / (x + y));
}

// H (upper Hessenberg) becomes triangular, where vectors are wanted, or is lost; q := q times its Schur vectors.
template <typename T>
bool complex_qr(View<T> h, Balance b, T* values, View<T> q) {
  using R = Real<T>;
  const int64_t n = h.rows;
  const bool wanted = q.cols > 0;
  for (int64_t i = b.high; i > b.low;) {
    int64_t l = b.low;
    for (int iteration = 0;; ++iteration) {
      for (l = i; l > b.low; --l) {
        const R around = abs1(h(l - 1, l - 1)) + abs1(h(l, l));
        const R size = around == R(0) ? R(1) : around;
        if (abs1(h(l, l - 1)) <= kEpsilon<R> * size) {
          // Ahues and Tisseur's criterion: small against what it would move.
          const R below = abs1(h(l, l - 1)), above = abs1(h(l - 1, l)), gap = abs1(h(l - 1, l - 1) - h(l, l));
          const R corner = std::max(abs1(h(l, l)), gap), sum = corner + std::max(below, above);
          if (sum == R(0) ||
              std::min(below, above) * (std::max(below, above) / sum) <=
                  std::max(kTiny<R> / kEpsilon<R>, kEpsilon<R> * (std::min(abs1(h(l, l)), gap) * (corner / sum)))) {
            h(l, l - 1) = T(0);
            break;
          }
        }
        if (abs1(h(l, l - 1)) <= kTiny<R> / kEpsilon<R>) {
          h(l, l - 1) = T(0);
          break;
        }
      }
      if (l >= i) break;
      if (iteration == 300) return false;
      T shift;
      if (iteration % 20 == 10) {
        shift = T(R(0.75) * abs1(h(l + 1, l))) + h(l, l);
      } else if (iteration % 20 == 19) {
        shift = T(R(0.75) * abs1(h(i, i - 1))) + h(i, i);
      } else {
        shift = wilkinson_shift(h, i);
      }
      const int64_t first = wanted ? 0 : l, end = wanted ? n : i + 1;
      T f = h(l, l) - shift, g = h(l + 1, l);
      for (int64_t k = l; k < i; ++k) {
        if (k > l) f = h(k, k - 1), g = h(k + 1, k - 1);
        const R fa = abs(f), length = std::hypot(fa, abs(g));
        R c = 1;
        T s(0);
        if (length > R(0)) {
          c = fa / length;
          s = fa == R(0) ? conj(g) / length : (f / fa) * (conj(g) / length);
        }
        for (int64_t j = std::max(k - 1, l); j < end; ++j) {
          const T x = h(k, j), y = h(k + 1, j);
          h(k, j) = x * c + s * y;
          h(k + 1, j) = y * c - conj(s) * x;
        }
        if (k > l) h(k + 1, k - 1) = T(0);
        const auto rotate = [&](View<T> z, int64_t from, int64_t to) {
          T *x = z.column(k), *y = z.column(k + 1);
#pragma omp simd
          for (int64_t r = from; r < to; ++r) {
            const T a = x[r], d = y[r];
            x[r] = a * c + conj(s) * d;
            y[r] = d * c - s * a;
          }
        };
        rotate(h, first, std::min(k + 3, i + 1));
        if (wanted) rotate(q, 0, n);
      }
    }
    i = l - 1;
  }
  for (int64_t i = 0; i < n; ++i) values[i] = h(i, i);
  return true;
}

// q := q times the eigenvectors of the triangular h, whose strict lower triangle is not read.
template <typename T>
void triangular_vectors(View<T> h, View<T> q, Arena arena) {
  using R = Real<T>;
  const int64_t n = h.rows;
  const View<T> x = columns(arena.take<T>(n * n), n, n);
  fill(x, T(0));
  R size = 0;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i <= j; ++i) size = std::max(size, abs1(h(i, j)));
  const R large = std::sqrt(std::numeric_limits<R>::max()) * kEpsilon<R>;
  for (int64_t k = 0; k < n; ++k) {
    const T value = h(k, k);
    // Where eigenvalues are equal, one of them is moved by what rounding would move it.
    const R least =
        std::max(kEpsilon<R> * abs1(value), std::max(kTiny<R> / kEpsilon<R>, kTiny<R> * R(n) / kEpsilon<R>));
    T* v = x.column(k);
    v[k] = T(1);
    for (int64_t i = 0; i < k; ++i) v[i] = -h(i, k);
    for (int64_t i = k; i-- > 0;) {
      T pivot = h(i, i) - value;
      if (abs1(pivot) < least) pivot = T(least);
      v[i] = v[i] / pivot;
      const R grown = abs1(v[i]);
      if (grown > large / std::max(R(1), size)) scale(k + 1, R(1) / grown, v);
      add_scaled(i, -v[i], h.column(i), v);
    }
    const R length = norm(k + 1, v);
    scale(k + 1, R(1) / length, v);
  }
  const View<T> product = h;  // no longer needed
  fill(product, T(0));
  add_product(product, R(1), q.reading(), x.reading(), arena);
  copy(q, product);
}

template <typename R>
void normalize(View<Complex<R>> q, View<Complex<R>> out) {
  for (int64_t j = 0; j < q.cols; ++j) {
    const R length = norm(q.rows, q.column(j));
    int64_t most = 0;
    for (int64_t i = 0; i < q.rows; ++i) {
      out(i, j) = q(i, j) / length;
      if (square(out(i, j)) > square(out(most, j))) most = i;
    }
    const Complex<R> turn = conj(out(most, j)) / abs(out(most, j));
    for (int64_t i = 0; i < q.rows; ++i) out(i, j) *= turn;
    out(most, j).im = 0;
  }
}

}  // namespace aotpack::linalg::detail
