// Products of Householder reflectors H = I - tau v v^H, as LAPACK has them (larfg, larft, larfb, geqrf,
// ungqr, unmqr): the same signs.
#pragma once

#include "kernels/linalg/product.h"

namespace aotpack::linalg {

// Finds H with H^H (alpha, x) = (beta, 0) and beta real; alpha becomes beta, x the rest of v, whose first element is
// 1. Returns tau. x has n elements.
template <typename T>
T make_reflector(T& alpha, int64_t n, T* x) {
  using R = Real<T>;
  const R rest = norm(n, x);
  if (rest == R(0) && imag(alpha) == R(0)) return T(0);
  const R beta = -std::copysign(std::hypot(abs(alpha), rest), real(alpha));
  T tau;
  if constexpr (is_complex<T>) {
    tau = {(beta - alpha.re) / beta, -alpha.im / beta};
  } else {
    tau = (beta - alpha) / beta;
  }
  const T difference = alpha - T(beta);
  if (abs(difference) >= kTiny<R> / kEpsilon<R>) {
    scale(n, T(1) / difference, x);
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] / difference;
  }
  alpha = T(beta);
  return tau;
}

// C := (I - tau v v^H) C, where v = (1, rest); C is column-major.
template <typename T>
void reflect(T tau, const T* rest, View<T> c) {
  if (tau == T(0)) return;
  for (int64_t j = 0; j < c.cols; ++j) {
    T* column = c.column(j);
    const T factor = tau * (column[0] + dot(c.rows - 1, rest, column + 1));
    column[0] -= factor;
    add_scaled(c.rows - 1, -factor, rest, column + 1);
  }
}

// C := C (I - tau v v^H), where v = (1, rest); C is column-major. work: C.rows.
template <typename T>
void reflect_right(T tau, const T* rest, View<T> c, T* work) {
  if (tau == T(0) || c.rows == 0) return;
  std::copy(c.data, c.data + c.rows, work);
  for (int64_t j = 1; j < c.cols; ++j) add_scaled(c.rows, rest[j - 1], c.column(j), work);
  add_scaled(c.rows, -tau, work, c.data);
  for (int64_t j = 1; j < c.cols; ++j) add_scaled(c.rows, -(tau * conj(rest[j - 1])), work, c.column(j));
}

// Workspace of the functions below for reflectors of m elements and a C of n columns (rows, from the right).
template <typename T>
int64_t reflectors_room(int64_t m, int64_t n) {
  return Arena::room<T>(m * kBlock) + 2 * Arena::room<T>(kBlock * n) + Arena::room<T>(kBlock * kBlock) +
         product_room<T>(std::max(m, n), std::max(m, n), std::max(m, kBlock));
}

// C := (I - V T V^H) C for the reflectors H1 ... Hk = I - V T V^H of k <= kBlock columns, v below the diagonal of
// `v`; with `adjoint` (I - V T^H V^H) C. From the right: of views transposed, and `right` set.
template <typename T>
void apply_block(View<const T> v, const T* tau, bool adjoint, bool right, View<T> c, Arena arena) {
  using R = Real<T>;
  const int64_t m = v.rows, k = v.cols, n = c.cols;
  if (n == 0 || k == 0) return;
  const View<T> full = columns(arena.take<T>(m * k), m, k);
  for (int64_t j = 0; j < k; ++j)
    for (int64_t i = 0; i < m; ++i) full(i, j) = i < j ? T(0) : i == j ? T(1) : v.get(i, j);
  const View<T> t = columns(arena.take<T>(k * k), k, k);
  fill(t, T(0));
  for (int64_t j = 0; j < k; ++j) {
    t(j, j) = tau[j];
    T column[kBlock];
    for (int64_t i = 0; i < j; ++i) column[i] = -tau[j] * dot(m - j, full.column(i) + j, full.column(j) + j);
    for (int64_t i = 0; i < j; ++i) {
      T sum(0);
      for (int64_t l = i; l < j; ++l) sum += t(i, l) * column[l];
      t(i, j) = sum;
    }
  }
  const View<T> w = columns(arena.take<T>(k * n), k, n), u = columns(arena.take<T>(k * n), k, n);
  fill(w, T(0));
  fill(u, T(0));
  // C (I - V S V^H) is, transposed, (I - conj(V) S^T V^T) C^T, with S either T or T^H.
  View<const T> reader = full.reading(), middle = t.reading();
  if (right) {
    reader.conjugate = is_complex<T>;
    middle = (adjoint ? t.adjoint() : t).reading().transposed();
    add_product(w, R(1), full.transposed().reading(), c.reading(), arena);
  } else {
    if (adjoint) middle = t.adjoint().reading();
    add_product(w, R(1), full.adjoint().reading(), c.reading(), arena);
  }
  add_product(u, R(1), middle, w.reading(), arena);
  add_product(c, R(-1), reader, u.reading(), arena);
}

// A (m x n, column-major) becomes R and, below the diagonal, the reflectors; tau has min(m, n) elements.
template <typename T>
void qr_factor(View<T> a, T* tau, Arena arena) {
  const int64_t size = std::min(a.rows, a.cols);
  for (int64_t k0 = 0; k0 < size; k0 += kBlock) {
    const int64_t width = std::min(kBlock, size - k0), end = k0 + width;
    // Where few columns are left, one by one is faster than by blocks.
    const bool blocked = a.cols - end > kBlock / 2;
    for (int64_t k = k0; k < end; ++k) {
      T* column = a.column(k) + k;
      tau[k] = make_reflector(*column, a.rows - k - 1, column + 1);
      const int64_t last = blocked ? end : a.cols;
      reflect(conj(tau[k]), column + 1, a.block(k, k + 1, a.rows - k, last - k - 1));
    }
    if (!blocked) continue;
    apply_block(a.block(k0, k0, a.rows - k0, width).reading(), tau + k0, true, false,
                a.block(k0, end, a.rows - k0, a.cols - end), arena);
  }
}

// C := Q C or Q^H C, where Q = H1 H2 ... Hk has the columns of `v` (m x k).
template <typename T>
void multiply_q(View<const T> v, const T* tau, bool adjoint, View<T> c, Arena arena) {
  const int64_t k = v.cols, blocks = (k + kBlock - 1) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t k0 = (adjoint ? step : blocks - 1 - step) * kBlock, width = std::min(kBlock, k - k0);
    apply_block(v.block(k0, k0, v.rows - k0, width), tau + k0, adjoint, false, c.block(k0, 0, c.rows - k0, c.cols),
                arena);
  }
}

// C := C Q or C Q^H.
template <typename T>
void multiply_q_right(View<const T> v, const T* tau, bool adjoint, View<T> c, Arena arena) {
  const int64_t k = v.cols, blocks = (k + kBlock - 1) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t k0 = (adjoint ? blocks - 1 - step : step) * kBlock, width = std::min(kBlock, k - k0);
    apply_block(v.block(k0, k0, v.rows - k0, width), tau + k0, adjoint, true,
                c.block(0, k0, c.rows, c.cols - k0).transposed(), arena);
  }
}

// Q := the first columns of H1 H2 ... Hk. Q must not overlap v.
template <typename T>
void make_q(View<const T> v, const T* tau, View<T> q, Arena arena) {
  set_identity(q);
  const int64_t k = v.cols, blocks = (k + kBlock - 1) / kBlock;
  for (int64_t step = blocks; step-- > 0;) {
    // Columns before the block's are still those of the identity, and 0 where the block works.
    const int64_t k0 = step * kBlock, width = std::min(kBlock, k - k0);
    apply_block(v.block(k0, k0, v.rows - k0, width), tau + k0, false, false, q.block(k0, k0, q.rows - k0, q.cols - k0),
                arena);
  }
}

}  // namespace aotpack::linalg
