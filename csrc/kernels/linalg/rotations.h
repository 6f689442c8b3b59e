// Sequences of plane rotations of neighbouring columns, and the range that iterations over tridiagonal and
// bidiagonal matrices work in.
#pragma once

#include "kernels/linalg/view.h"

namespace aotpack::linalg {

namespace detail {

template <int Rows, typename R>
void rotate_strip(R* z, int64_t ld, int64_t rows, int64_t count, const R* c, const R* s, bool backward) {
  R carry[Rows];
  const int64_t start = backward ? count : 0;
  for (int64_t i = 0; i < rows; ++i) carry[i] = z[start * ld + i];
  for (int64_t step = 0; step < count; ++step) {
    const int64_t j = backward ? count - 1 - step : step;
    R* done = z + (backward ? j + 1 : j) * ld;
    const R* other = z + (backward ? j : j + 1) * ld;
    // Rotated the other way, seen from the other end.
    const R cosine = c[j], sine = backward ? -s[j] : s[j];
    if (rows == Rows) {
#pragma omp simd
      for (int64_t i = 0; i < Rows; ++i) {
        const R x = carry[i], y = other[i];
        done[i] = cosine * x - sine * y;
        carry[i] = sine * x + cosine * y;
      }
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        const R x = carry[i], y = other[i];
        done[i] = cosine * x - sine * y;
        carry[i] = sine * x + cosine * y;
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) z[(backward ? 0 : count) * ld + i] = carry[i];
}

template <typename R>
void rotate_real(R* z, int64_t ld, int64_t rows, int64_t count, const R* c, const R* s, bool backward) {
  constexpr int kRows = 32;
  for (int64_t i = 0; i < rows; i += kRows)
    rotate_strip<kRows>(z + i, ld, std::min<int64_t>(kRows, rows - i), count, c, s, backward);
}

}  // namespace detail

// Columns j and j + 1 become c x - s y and s x + c y, for j = 0 ... count - 1, or (`backward`) count - 1 ... 0.
template <typename T>
void rotate_columns(View<T> z, int64_t count, const Real<T>* c, const Real<T>* s, bool backward) {
  using R = Real<T>;
  if (count == 0 || z.rows == 0) return;
  // Rotations are real: real and imaginary parts are rows of their own.
  constexpr int64_t parts = sizeof(T) / sizeof(R);
  detail::rotate_real(reinterpret_cast<R*>(z.data), z.cs * parts, z.rows * parts, count, c, s, backward);
}

// One rotation of the columns i and k.
template <typename T>
void rotate_pair(View<T> z, int64_t i, int64_t k, Real<T> c, Real<T> s) {
  T *x = z.column(i), *y = z.column(k);
#pragma omp simd
  for (int64_t r = 0; r < z.rows; ++r) {
    const T a = x[r], b = y[r];
    x[r] = a * c - b * s;
    y[r] = a * s + b * c;
  }
}

// c and s with c f + s g = r and c g - s f = 0.
template <typename R>
R make_rotation(R f, R g, R& c, R& s) {
  const R r = std::hypot(f, g);
  if (r == R(0)) {
    c = 1, s = 0;
    return 0;
  }
  c = f / r;
  s = g / r;
  return r;
}

// What to multiply a matrix by, whose greatest element is `greatest`, so that squares neither over- nor underflow.
template <typename R>
R scale_for(R greatest) {
  const R least = std::sqrt(kTiny<R>) / kEpsilon<R>;
  if (greatest == R(0) || (greatest >= least && greatest <= R(1) / least)) return R(1);
  // A power of two, so that nothing is rounded.
  int exponent;
  std::frexp(greatest, &exponent);
  return std::ldexp(
      R(1), std::clamp(-exponent, std::numeric_limits<R>::min_exponent, std::numeric_limits<R>::max_exponent - 2));
}

template <typename T>
Real<T> greatest_element(View<T> a) {
  Real<T> greatest = 0;
  for (int64_t j = 0; j < a.cols; ++j)
    for (int64_t i = 0; i < a.rows; ++i)
      greatest = std::max({greatest, std::abs(real(a(i, j))), std::abs(imag(a(i, j)))});
  return greatest;
}

}  // namespace aotpack::linalg
