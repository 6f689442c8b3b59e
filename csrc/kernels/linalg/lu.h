// LU with row pivoting, as LAPACK's getrf and getrs: the same pivots, 1-based.
#pragma once

#include "kernels/linalg/product.h"

namespace aotpack::linalg {

template <typename T>
int64_t lu_room(int64_t m, int64_t n) {
  return std::min(m, n) <= kBlock && n <= kBlock ? 0 : product_room<T>(m, n, kBlock);
}

// A (m x n, column-major) becomes L (unit, below the diagonal) and U; pivots has min(m, n) elements.
// Returns the 1-based place of the first pivot that is exactly 0, or 0.
template <typename T>
int32_t lu_factor(View<T> a, int32_t* pivots, Arena arena) {
  const int64_t size = std::min(a.rows, a.cols);
  int32_t info = 0;
  for (int64_t k0 = 0; k0 < size; k0 += kBlock) {
    const int64_t width = std::min(kBlock, size - k0);
    const View<T> panel = a.block(0, k0, a.rows, width);
    for (int64_t k = k0; k < k0 + width; ++k) {
      T* column = a.column(k);
      int64_t best = k;
      for (int64_t i = k + 1; i < a.rows; ++i)
        if (abs1(column[i]) > abs1(column[best])) best = i;
      pivots[k] = static_cast<int32_t>(best + 1);
      swap_rows(panel, k, best);
      if (column[k] == T(0)) {
        if (info == 0) info = static_cast<int32_t>(k + 1);
        continue;
      }
      const int64_t below = a.rows - k - 1;
      if (below == 0) continue;
      if (abs(column[k]) >= kTiny<Real<T>>) {
        scale(below, T(1) / column[k], column + k + 1);
      } else {
        for (int64_t i = k + 1; i < a.rows; ++i) column[i] = column[i] / column[k];
      }
      for (int64_t j = k + 1; j < k0 + width; ++j) add_scaled(below, -a(k, j), column + k + 1, a.column(j) + k + 1);
    }
    const int64_t right = a.cols - k0 - width, below = a.rows - k0 - width;
    for (int64_t k = k0; k < k0 + width; ++k) {
      swap_rows(a.block(0, 0, a.rows, k0), k, pivots[k] - 1);
      swap_rows(a.block(0, k0 + width, a.rows, right), k, pivots[k] - 1);
    }
    if (right == 0) continue;
    const View<T> top = a.block(k0, k0 + width, width, right);
    solve_triangular(a.block(k0, k0, width, width).reading(), true, true, top, arena);
    add_product(a.block(k0 + width, k0 + width, below, right), Real<T>(-1),
                a.block(k0 + width, k0, below, width).reading(), top.reading(), arena);
  }
  return info;
}

// The row that ends up at each place, when rows are swapped as `pivots` say. permutation: n elements.
inline bool lu_permutation(const int32_t* pivots, int64_t count, int64_t n, int64_t* permutation) {
  for (int64_t i = 0; i < n; ++i) permutation[i] = i;
  for (int64_t i = 0; i < count; ++i) {
    if (pivots[i] < 1 || pivots[i] > n) return false;
    std::swap(permutation[i], permutation[pivots[i] - 1]);
  }
  return true;
}

template <typename T>
int64_t lu_solve_room(int64_t n, int64_t m) {
  return triangular_room<T>(n, m);
}

// B := A^-1 B, or (adjoint) A^-H B, where LU and pivots are those of A. False if a pivot is out of range.
template <typename T>
bool lu_solve(View<const T> lu, const int32_t* pivots, bool adjoint, View<T> b, Arena arena) {
  const int64_t n = lu.rows;
  for (int64_t i = 0; i < n; ++i)
    if (pivots[i] < 1 || pivots[i] > n) return false;
  if (!adjoint) {
    for (int64_t i = 0; i < n; ++i) swap_rows(b, i, pivots[i] - 1);
    solve_triangular(lu, true, true, b, arena);
    solve_triangular(lu, false, false, b, arena);
  } else {
    solve_triangular(lu.adjoint(), true, false, b, arena);
    solve_triangular(lu.adjoint(), false, true, b, arena);
    for (int64_t i = n; i-- > 0;) swap_rows(b, i, pivots[i] - 1);
  }
  return true;
}

}  // namespace aotpack::linalg
