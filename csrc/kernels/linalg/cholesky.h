// A = L L^H, as LAPACK's potrf.
#pragma once

#include "kernels/linalg/product.h"

namespace aotpack::linalg {

template <typename T>
int64_t cholesky_room(int64_t n) {
  return n <= kBlock ? 0 : product_room<T>(n, n, kBlock);
}

// The lower triangle of A (n x n, column-major) becomes L; what the other holds is lost. Returns the order of the
// first leading minor that is not positive definite, or 0.
template <typename T>
int32_t cholesky(View<T> a, Arena arena) {
  using R = Real<T>;
  const int64_t n = a.rows;
  for (int64_t k0 = 0; k0 < n; k0 += kBlock) {
    const int64_t width = std::min(kBlock, n - k0), end = k0 + width;
    // Column by column: where it fails, the columns to the right are as LAPACK leaves them.
    for (int64_t k = k0; k < end; ++k) {
      T* column = a.column(k);
      R pivot = real(column[k]);
      for (int64_t j = k0; j < k; ++j) pivot -= square(a(k, j));
      column[k] = T(pivot);
      if (!(pivot > R(0))) return static_cast<int32_t>(k + 1);  // or NaN
      const R root = std::sqrt(pivot);
      column[k] = T(root);
      for (int64_t j = k0; j < k; ++j) add_scaled(end - k - 1, -conj(a(k, j)), a.column(j) + k + 1, column + k + 1);
      scale(end - k - 1, R(1) / root, column + k + 1);
    }
    const int64_t rest = n - end;
    if (rest == 0) break;
    const View<T> below = a.block(end, k0, rest, width);
    // X L^H = B is conj(L) X^T = B^T.
    View<const T> factor = a.block(k0, k0, width, width).reading();
    factor.conjugate = is_complex<T>;
    solve_triangular(factor, true, false, below.transposed(), arena);
    for (int64_t j = 0; j < rest; j += kBlock) {
      const int64_t cols = std::min(kBlock, rest - j);
      add_product(a.block(end + j, end + j, rest - j, cols), R(-1), below.block(j, 0, rest - j, width).reading(),
                  below.block(j, 0, cols, width).adjoint().reading(), arena);
    }
  }
  return 0;
}

}  // namespace aotpack::linalg
