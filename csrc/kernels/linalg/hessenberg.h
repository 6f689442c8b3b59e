// What comes before and after the QR algorithm for general matrices: balancing (LAPACK's gebal, gebak;
// Parlett and Reinsch, "Balancing a matrix for calculation of eigenvalues and eigenvectors", 1969), Hessenberg form
// (gehd2, unghr).
#pragma once

#include "kernels/linalg/householder.h"

namespace aotpack::linalg {

// Rows and columns outside of [low, high] are those of a triangular matrix; scales[i] is a factor inside, and outside
// the row that i was swapped with.
struct Balance {
  int64_t low, high;
};

namespace detail {

template <typename T>
void exchange(View<T> a, int64_t j, int64_t m, int64_t low, int64_t high) {
  if (j == m) return;
  for (int64_t i = 0; i <= high; ++i) std::swap(a(i, j), a(i, m));
  for (int64_t i = low; i < a.cols; ++i) std::swap(a(j, i), a(m, i));
}

template <typename T>
bool isolated_row(View<T> a, int64_t j, int64_t high) {
  for (int64_t i = 0; i <= high; ++i)
    if (i != j && !(a(j, i) == T(0))) return false;
  return true;
}
template <typename T>
bool isolated_column(View<T> a, int64_t j, int64_t low, int64_t high) {
  for (int64_t i = low; i <= high; ++i)
    if (i != j && !(a(i, j) == T(0))) return false;
  return true;
}

template <typename T>
bool balance_one(View<T> a, int64_t i, Balance b, Real<T>* scales) {
  using R = Real<T>;
  constexpr R kRadix = 2;
  const R least = kTiny<R> / kEpsilon<R> * kRadix, most = R(1) / least;
  const auto length = [](int64_t n, const T* x, int64_t stride) {
    R greatest = 0, sum = 0;
    for (int64_t k = 0; k < n; ++k) greatest = std::max(greatest, abs1(x[k * stride]));
    if (greatest == R(0)) return greatest;
    for (int64_t k = 0; k < n; ++k) sum += square(x[k * stride] / greatest);
    return greatest * std::sqrt(sum);
  };
  const int64_t inner = b.high - b.low + 1;
  R c = length(inner, &a(b.low, i), a.rs), r = length(inner, &a(i, b.low), a.cs), ca = 0, ra = 0;
  for (int64_t k = 0; k <= b.high; ++k) ca = std::max(ca, abs(a(k, i)));
  for (int64_t k = b.low; k < a.cols; ++k) ra = std::max(ra, abs(a(i, k)));
  if (c == R(0) || r == R(0)) return false;
  const R sum = c + r;
  R g = r / kRadix, f = 1;
  while (c < g && std::max({f, c, ca}) < most && std::min({r, g, ra}) > least)
    f *= kRadix, c *= kRadix, ca *= kRadix, r /= kRadix, g /= kRadix, ra /= kRadix;
  g = c / kRadix;
  while (g >= r && std::max(r, ra) < most && std::min({f, c, g, ca}) > least)
    f /= kRadix, c /= kRadix, g /= kRadix, ca /= kRadix, r *= kRadix, ra *= kRadix;
  if (c + r >= R(0.95) * sum) return false;
  if (f < R(1) && scales[i] < R(1) && f * scales[i] <= least) return false;
  if (f > R(1) && scales[i] > R(1) && scales[i] >= most / f) return false;
  scales[i] *= f;
  for (int64_t k = b.low; k < a.cols; ++k) a(i, k) = a(i, k) / f;
  for (int64_t k = 0; k <= b.high; ++k) a(k, i) = a(k, i) * f;
  return true;
}

}  // namespace detail

// Balances A (n x n, n > 0) in place; scales: n.
template <typename T>
Balance balance(View<T> a, Real<T>* scales) {
  Balance b{0, a.rows - 1};
  for (int64_t j = b.high; j >= 0; --j) {
    if (!detail::isolated_row(a, j, b.high)) continue;
    scales[b.high] = static_cast<Real<T>>(j);
    detail::exchange(a, j, b.high, b.low, b.high);
    if (b.high == 0) return b;
    j = b.high--;  // all over again
  }
  for (int64_t j = b.low; j <= b.high; ++j) {
    if (!detail::isolated_column(a, j, b.low, b.high)) continue;
    scales[b.low] = static_cast<Real<T>>(j);
    detail::exchange(a, j, b.low, b.low, b.high);
    j = b.low++;
  }
  for (int64_t i = b.low; i <= b.high; ++i) scales[i] = 1;
  for (bool again = true; again;) {
    again = false;
    for (int64_t i = b.low; i <= b.high; ++i) again |= detail::balance_one(a, i, b, scales);
  }
  return b;
}

// Right eigenvectors of the balanced matrix become those of the original.
template <typename T>
void balance_back(Balance b, const Real<T>* scales, View<T> v) {
  for (int64_t i = b.low; i <= b.high && b.low != b.high; ++i)
    for (int64_t j = 0; j < v.cols; ++j) v(i, j) = v(i, j) * scales[i];
  for (int64_t i = b.low; i-- > 0;) swap_rows(v, i, static_cast<int64_t>(scales[i]));
  for (int64_t i = b.high + 1; i < v.rows; ++i) swap_rows(v, i, static_cast<int64_t>(scales[i]));
}

// A = Q H Q^H: A becomes H, and `q` (no columns: not wanted) Q. tau, work: n.
template <typename T>
void hessenberg(View<T> a, Balance b, View<T> q, T* tau, T* work, Arena arena) {
  const int64_t n = a.rows;
  for (int64_t k = b.low; k + 1 < b.high; ++k) {
    const int64_t m = b.high - k;
    T* v = a.column(k) + k + 1;
    tau[k] = make_reflector(v[0], m - 1, v + 1);
    reflect_right(tau[k], v + 1, a.block(0, k + 1, b.high + 1, m), work);
    reflect(conj(tau[k]), v + 1, a.block(k + 1, k + 1, m, n - k - 1));
  }
  if (q.cols > 0) {
    set_identity(q);
    const int64_t m = b.high - b.low;
    if (m > 1) {
      make_q(a.block(b.low + 1, b.low, m, m - 1).reading(), tau + b.low, q.block(b.low + 1, b.low + 1, m, m), arena);
    }
  }
  for (int64_t j = 0; j + 2 < n; ++j)
    for (int64_t i = j + 2; i < n; ++i) a(i, j) = T(0);
}

}  // namespace aotpack::linalg
