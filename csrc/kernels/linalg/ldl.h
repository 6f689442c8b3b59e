// A = L D L^T or L D L^H of matrices that need not be definite, as LAPACK's sytrf, hetrf, sytrs and hetrs with
// the lower triangle: Bunch and Kaufman's pivoting, "Some stable methods for calculating inertia and solving symmetric
// linear systems" (1977), and its encoding.
#pragma once

#include "kernels/linalg/view.h"

namespace aotpack::linalg {

namespace detail {
template <typename T>
T mirrored(T x, bool hermitian) {
  return hermitian ? conj(x) : x;
}
}  // namespace detail

// The lower triangle of A (n x n, column-major) becomes L and D. pivots[k] > 0: D(k, k) is 1 x 1, and rows k and
// pivots[k] - 1 were swapped; pivots[k] = pivots[k + 1] < 0: 2 x 2, and rows k + 1 and -pivots[k] - 1 were. Returns
// the 1-based place of the first D(k, k) that is exactly 0, or 0.
template <typename T>
int32_t ldl_factor(View<T> a, bool hermitian, int32_t* pivots) {
  using R = Real<T>;
  const R alpha = (R(1) + std::sqrt(R(17))) / R(8);
  const int64_t n = a.rows;
  const bool conjugated = hermitian && is_complex<T>;
  const auto magnitude = [&](int64_t i) { return conjugated ? std::abs(real(a(i, i))) : abs1(a(i, i)); };
  int32_t info = 0;
  for (int64_t k = 0; k < n;) {
    int64_t step = 1, pivot = k;
    const R diagonal = magnitude(k);
    int64_t row = k;
    R greatest = 0;
    for (int64_t i = k + 1; i < n; ++i)
      if (abs1(a(i, k)) > greatest) greatest = abs1(a(i, k)), row = i;
    if (std::max(diagonal, greatest) == R(0) || std::isnan(diagonal)) {
      if (info == 0) info = static_cast<int32_t>(k + 1);
      if (conjugated) a(k, k) = T(real(a(k, k)));
      pivots[k] = static_cast<int32_t>(k + 1);
      ++k;
      continue;
    }
    if (diagonal < alpha * greatest) {
      R other = 0;
      for (int64_t j = k; j < row; ++j) other = std::max(other, abs1(a(row, j)));
      for (int64_t i = row + 1; i < n; ++i) other = std::max(other, abs1(a(i, row)));
      if (diagonal >= alpha * greatest * (greatest / other)) {
        pivot = k;
      } else if (magnitude(row) >= alpha * other) {
        pivot = row;
      } else {
        pivot = row;
        step = 2;
      }
    }
    const int64_t place = k + step - 1;
    if (pivot != place) {
      for (int64_t i = pivot + 1; i < n; ++i) std::swap(a(i, place), a(i, pivot));
      for (int64_t j = place + 1; j < pivot; ++j) {
        const T kept = detail::mirrored(a(j, place), conjugated);
        a(j, place) = detail::mirrored(a(pivot, j), conjugated);
        a(pivot, j) = kept;
      }
      if (conjugated) a(pivot, place) = conj(a(pivot, place));
      std::swap(a(place, place), a(pivot, pivot));
      if (step == 2) std::swap(a(k + 1, k), a(pivot, k));
    }
    if (conjugated) {
      for (int64_t i = k; i < k + step; ++i) a(i, i) = T(real(a(i, i)));
      a(pivot, pivot) = T(real(a(pivot, pivot)));
    }
    if (step == 1) {
      const T inverse = T(1) / a(k, k);
      T* column = a.column(k);
      for (int64_t j = k + 1; j < n; ++j) {
        add_scaled(n - j, -(inverse * detail::mirrored(column[j], conjugated)), column + j, a.column(j) + j);
        if (conjugated) a(j, j) = T(real(a(j, j)));
      }
      scale(n - k - 1, inverse, column + k + 1);
      pivots[k] = static_cast<int32_t>(pivot + 1);
    } else {
      // (w0, w1) = rows of A times the inverse of D; the trailing matrix loses w A^H.
      T* c0 = a.column(k);
      T* c1 = a.column(k + 1);
      const T d21 = c0[k + 1];
      const T d11 = c1[k + 1] / d21, d22 = c0[k] / detail::mirrored(d21, conjugated);
      const T scaled = T(1) / (d11 * d22 - T(1));
      for (int64_t j = k + 2; j < n; ++j) {
        const T w0 = scaled * (d11 * c0[j] - c1[j]) / detail::mirrored(d21, conjugated);
        const T w1 = scaled * (d22 * c1[j] - c0[j]) / d21;
        const T m0 = detail::mirrored(w0, conjugated), m1 = detail::mirrored(w1, conjugated);
        T* column = a.column(j);
        for (int64_t i = j; i < n; ++i) column[i] -= c0[i] * m0 + c1[i] * m1;
        c0[j] = w0;
        c1[j] = w1;
        if (conjugated) a(j, j) = T(real(a(j, j)));
      }
      pivots[k] = pivots[k + 1] = static_cast<int32_t>(-(pivot + 1));
    }
    k += step;
  }
  return info;
}

// B := A^-1 B. False if a pivot is none.
template <typename T>
bool ldl_solve(View<const T> a, const int32_t* pivots, bool hermitian, View<T> b) {
  const int64_t n = a.rows;
  const bool conjugated = hermitian && is_complex<T>;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t row = std::abs(static_cast<int64_t>(pivots[k]));
    if (row < 1 || row > n) return false;
    if (pivots[k] < 0 && (k + 1 == n || pivots[k + 1] >= 0)) return false;
    if (pivots[k] < 0) ++k;
  }
  for (int64_t k = 0; k < n;) {
    const int64_t step = pivots[k] > 0 ? 1 : 2;
    swap_rows(b, k + step - 1, std::abs(static_cast<int64_t>(pivots[k])) - 1);
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t s = 0; s < step; ++s) {
        const T x = b(k + s, j);
        for (int64_t i = k + step; i < n; ++i) b(i, j) -= a.get(i, k + s) * x;
      }
      if (step == 1) {
        const T d = a.get(k, k);
        b(k, j) = conjugated ? b(k, j) / real(d) : b(k, j) / d;
      } else {
        const T d21 = a.get(k + 1, k), d12 = detail::mirrored(d21, conjugated);
        const T a0 = a.get(k, k) / d12, a1 = a.get(k + 1, k + 1) / d21, denominator = a0 * a1 - T(1);
        const T x0 = b(k, j) / d12, x1 = b(k + 1, j) / d21;
        b(k, j) = (a1 * x0 - x1) / denominator;
        b(k + 1, j) = (a0 * x1 - x0) / denominator;
      }
    }
    k += step;
  }
  for (int64_t k = n; k-- > 0;) {
    const int64_t first = pivots[k] > 0 ? k : k - 1;
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t c = first; c <= k; ++c) {
        T sum(0);
        for (int64_t i = k + 1; i < n; ++i) sum += detail::mirrored(a.get(i, c), conjugated) * b(i, j);
        b(c, j) -= sum;
      }
    }
    swap_rows(b, k, std::abs(static_cast<int64_t>(pivots[k])) - 1);
    k = first;
  }
  return true;
}

}  // namespace aotpack::linalg
