// Francis's double-shift QR algorithm and the vectors of quasi-triangular matrices, as EISPACK's hqr2
// (Peters and Wilkinson, "Eigenvectors of real and complex matrices by LR and QR triangularizations", 1970).
#pragma once

#include "kernels/linalg/hessenberg.h"

namespace aotpack::linalg::detail {

// H (upper Hessenberg) becomes quasi-triangular, where vectors are wanted, or is lost; q := q times its Schur vectors.
template <typename R>
bool real_qr(View<R> h, Balance b, R* re, R* im, View<R> q) {
  const int64_t nn = h.rows, low = b.low;
  const bool wanted = q.cols > 0;
  const R eps = kEpsilon<R>;
  R total = 0;
  for (int64_t i = 0; i < nn; ++i) {
    if (i < b.low || i > b.high) re[i] = h(i, i), im[i] = 0;
    for (int64_t j = std::max<int64_t>(i - 1, 0); j < nn; ++j) total += std::abs(h(i, j));
  }
  R moved = 0, p = 0, qq = 0, r = 0, s = 0, z = 0, w, x, y;
  int iteration = 0;
  for (int64_t n = b.high; n >= low;) {
    int64_t l = n;
    for (; l > low; --l) {
      s = std::abs(h(l - 1, l - 1)) + std::abs(h(l, l));
      if (s == R(0)) s = total;
      if (std::abs(h(l, l - 1)) <= eps * s) break;
    }
    if (l == n) {
      h(n, n) += moved;
      re[n] = h(n, n);
      im[n] = 0;
      --n;
      iteration = 0;
      continue;
    }
    if (l == n - 1) {
      w = h(n, n - 1) * h(n - 1, n);
      p = (h(n - 1, n - 1) - h(n, n)) / 2;
      qq = p * p + w;
      z = std::sqrt(std::abs(qq));
      h(n, n) += moved;
      h(n - 1, n - 1) += moved;
      x = h(n, n);
      if (qq >= R(0)) {
        z = p >= R(0) ? p + z : p - z;
        re[n - 1] = x + z;
        re[n] = z != R(0) ? x - w / z : x + z;
        im[n - 1] = im[n] = 0;
        x = h(n, n - 1);
        s = std::abs(x) + std::abs(z);
        p = x / s;
        qq = z / s;
        r = std::hypot(p, qq);
        p /= r;
        qq /= r;
        const int64_t end = wanted ? nn : n + 1, first = wanted ? 0 : n - 1;
        for (int64_t j = n - 1; j < end; ++j) {
          z = h(n - 1, j);
          h(n - 1, j) = qq * z + p * h(n, j);
          h(n, j) = qq * h(n, j) - p * z;
        }
        for (int64_t i = first; i <= n; ++i) {
          z = h(i, n - 1);
          h(i, n - 1) = qq * z + p * h(i, n);
          h(i, n) = qq * h(i, n) - p * z;
        }
        if (wanted) {
          for (int64_t i = low; i <= b.high; ++i) {
            z = q(i, n - 1);
            q(i, n - 1) = qq * z + p * q(i, n);
            q(i, n) = qq * q(i, n) - p * z;
          }
        }
        h(n, n - 1) = 0;
      } else {
        re[n - 1] = re[n] = x + p;
        im[n - 1] = z;
        im[n] = -z;
      }
      n -= 2;
      iteration = 0;
      continue;
    }
    if (iteration == 300) return false;
    x = h(n, n);
    y = h(n - 1, n - 1);
    w = h(n, n - 1) * h(n - 1, n);
    if (iteration % 20 == 10) {  // Wilkinson's exceptional shift
      moved += x;
      for (int64_t i = low; i <= n; ++i) h(i, i) -= x;
      s = std::abs(h(n, n - 1)) + std::abs(h(n - 1, n - 2));
      x = y = R(0.75) * s;
      w = R(-0.4375) * s * s;
    }
    if (iteration % 40 == 30) {
      s = (y - x) / 2;
      s = s * s + w;
      if (s > R(0)) {
        s = std::copysign(std::sqrt(s), y - x);
        s = x - w / ((y - x) / 2 + s);
        for (int64_t i = low; i <= n; ++i) h(i, i) -= s;
        moved += s;
        x = y = w = R(0.964);
      }
    }
    ++iteration;
    int64_t m = n - 2;
    for (; m >= l; --m) {
      z = h(m, m);
      r = x - z;
      s = y - z;
      p = (r * s - w) / h(m + 1, m) + h(m, m + 1);
      qq = h(m + 1, m + 1) - z - r - s;
      r = h(m + 2, m + 1);
      s = std::abs(p) + std::abs(qq) + std::abs(r);
      p /= s;
      qq /= s;
      r /= s;
      if (m == l) break;
      if (std::abs(h(m, m - 1)) * (std::abs(qq) + std::abs(r)) <
          eps * (std::abs(p) * (std::abs(h(m - 1, m - 1)) + std::abs(z) + std::abs(h(m + 1, m + 1))))) {
        break;
      }
    }
    for (int64_t i = m + 2; i <= n; ++i) {
      h(i, i - 2) = 0;
      if (i > m + 2) h(i, i - 3) = 0;
    }
    for (int64_t k = m; k < n; ++k) {
      const bool last = k == n - 1;
      if (k != m) {
        p = h(k, k - 1);
        qq = h(k + 1, k - 1);
        r = last ? R(0) : h(k + 2, k - 1);
        x = std::abs(p) + std::abs(qq) + std::abs(r);
        if (x == R(0)) continue;
        p /= x;
        qq /= x;
        r /= x;
      }
      s = std::copysign(std::sqrt(p * p + qq * qq + r * r), p);
      if (s == R(0)) continue;
      if (k != m) {
        h(k, k - 1) = -s * x;
      } else if (l != m) {
        h(k, k - 1) = -h(k, k - 1);
      }
      p += s;
      x = p / s;
      y = qq / s;
      z = r / s;
      qq /= p;
      r /= p;
      const int64_t end = wanted ? nn : n + 1, first = wanted ? 0 : l;
      for (int64_t j = k; j < end; ++j) {
        R t = h(k, j) + qq * h(k + 1, j);
        if (!last) {
          t += r * h(k + 2, j);
          h(k + 2, j) -= t * z;
        }
        h(k, j) -= t * x;
        h(k + 1, j) -= t * y;
      }
      const auto reflect_columns = [&](View<R> a, int64_t from, int64_t to) {
        R *c0 = a.column(k), *c1 = a.column(k + 1), *c2 = a.column(last ? k + 1 : k + 2);
        if (last) {
          for (int64_t i = from; i < to; ++i) {
            const R t = x * c0[i] + y * c1[i];
            c0[i] -= t;
            c1[i] -= t * qq;
          }
        } else {
#pragma omp simd
          for (int64_t i = from; i < to; ++i) {
            const R t = x * c0[i] + y * c1[i] + z * c2[i];
            c0[i] -= t;
            c1[i] -= t * qq;
            c2[i] -= t * r;
          }
        }
      };
      reflect_columns(h, first, std::min(n, k + 3) + 1);
      if (wanted) reflect_columns(q, low, b.high + 1);
    }
  }
  return true;
}

// q := q times the eigenvectors of the quasi-triangular h; those of a complex pair are two columns, of real and
// imaginary parts.
template <typename R>
void quasi_triangular_vectors(View<R> h, const R* re, const R* im, View<R> q, Arena arena) {
  using C = Complex<R>;
  const int64_t nn = h.rows;
  const R eps = kEpsilon<R>;
  R total = 0;
  for (int64_t j = 0; j < nn; ++j)
    for (int64_t i = 0; i <= std::min(j + 1, nn - 1); ++i) total += std::abs(h(i, j));
  if (total == R(0)) return;
  const View<R> v = columns(arena.take<R>(nn * nn), nn, nn);
  fill(v, R(0));
  for (int64_t n = nn - 1; n >= 0; --n) {
    if (im[n] == R(0)) {
      const R p = re[n];
      int64_t l = n;
      R* x = v.column(n);
      x[n] = 1;
      R z = 0, s = 0;
      for (int64_t i = n - 1; i >= 0; --i) {
        const R w = h(i, i) - p;
        R r = 0;
        for (int64_t j = i + 1; j <= n; ++j) r += h(i, j) * x[j];
        if (im[i] < R(0)) {
          z = w;
          s = r;
          continue;
        }
        l = i;
        if (im[i] == R(0)) {
          x[i] = w != R(0) ? -r / w : -r / (eps * total);
        } else {
          const R a = h(i, i + 1), y = h(i + 1, i);
          const R denominator = (re[i] - p) * (re[i] - p) + im[i] * im[i];
          const R t = (a * s - z * r) / denominator;
          x[i] = t;
          x[i + 1] = std::abs(a) > std::abs(z) ? (-r - w * t) / a : (-s - y * t) / z;
        }
        const R t = std::abs(x[i]);
        if (eps * t * t > R(1)) scale(n - l + 1, R(1) / t, x + l);
      }
    } else if (im[n] < R(0)) {
      const R p = re[n], w0 = im[n];
      R *x = v.column(n - 1), *y = v.column(n);  // real and imaginary parts
      const auto set = [&](int64_t i, C value) { x[i] = value.re, y[i] = value.im; };
      if (std::abs(h(n, n - 1)) > std::abs(h(n - 1, n))) {
        set(n - 1, {w0 / h(n, n - 1), -(h(n, n) - p) / h(n, n - 1)});
      } else {
        set(n - 1, C(0, -h(n - 1, n)) / C(h(n - 1, n - 1) - p, w0));
      }
      set(n, {R(0), R(1)});
      R z = 0, r = 0, s = 0;
      for (int64_t i = n - 2; i >= 0; --i) {
        R ra = 0, sa = 0;
        for (int64_t j = i + 1; j <= n; ++j) ra += h(i, j) * x[j], sa += h(i, j) * y[j];
        const R w = h(i, i) - p;
        if (im[i] < R(0)) {
          z = w;
          r = ra;
          s = sa;
          continue;
        }
        if (im[i] == R(0)) {
          set(i, C(-ra, -sa) / (w == R(0) && w0 == R(0) ? C(eps * total) : C(w, w0)));
        } else {
          const R a = h(i, i + 1), c = h(i + 1, i);
          C denominator((re[i] - p) * (re[i] - p) + im[i] * im[i] - w0 * w0, (re[i] - p) * 2 * w0);
          if (denominator == C(0)) {
            denominator.re = eps * total * (std::abs(w) + std::abs(w0) + std::abs(a) + std::abs(c) + std::abs(z));
          }
          set(i, C(a * r - z * ra + w0 * sa, a * s - z * sa - w0 * ra) / denominator);
          if (std::abs(a) > std::abs(z) + std::abs(w0)) {
            x[i + 1] = (-ra - w * x[i] + w0 * y[i]) / a;
            y[i + 1] = (-sa - w * y[i] - w0 * x[i]) / a;
          } else {
            set(i + 1, C(-r - c * x[i], -s - c * y[i]) / C(z, w0));
          }
        }
        const R t = std::max(std::abs(x[i]), std::abs(y[i]));
        if (eps * t * t > R(1)) scale(n - i + 1, R(1) / t, x + i), scale(n - i + 1, R(1) / t, y + i);
      }
    }
  }
  const View<R> product = h;  // no longer needed
  fill(product, R(0));
  add_product(product, R(1), q.reading(), v.reading(), arena);
  copy(q, product);
}

template <typename R>
void normalize(View<R> q, const R* im, View<Complex<R>> out) {
  const int64_t n = q.rows;
  for (int64_t j = 0; j < q.cols; ++j) {
    if (im[j] == R(0)) {
      const R length = norm(n, q.column(j));
      for (int64_t i = 0; i < n; ++i) out(i, j) = {q(i, j) / length, R(0)};
      continue;
    }
    R *x = q.column(j), *y = q.column(j + 1);
    const R length = std::hypot(norm(n, x), norm(n, y));
    int64_t most = 0;
    R greatest = -1;
    for (int64_t i = 0; i < n; ++i) {
      x[i] /= length;
      y[i] /= length;
      const R size = x[i] * x[i] + y[i] * y[i];
      if (size > greatest) greatest = size, most = i;
    }
    const R size = std::hypot(x[most], y[most]);
    const Complex<R> turn(x[most] / size, -y[most] / size);
    for (int64_t i = 0; i < n; ++i) {
      Complex<R> value = Complex<R>(x[i], y[i]) * turn;
      if (i == most) value.im = 0;
      out(i, j) = value;
      out(i, j + 1) = conj(value);
    }
    ++j;
  }
}

}  // namespace aotpack::linalg::detail
