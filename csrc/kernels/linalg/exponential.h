// Exp of a matrix: Taylor polynomials of a degree that its norm asks for, scaling and squaring, as torch
// does it; Bader, Blanes and Casas, "Computing the matrix exponential with an optimized Taylor polynomial
// approximation" (2019), have the degrees and bounds. Polynomials are evaluated after Paterson and Stockmeyer.
#pragma once

#include "kernels/linalg/product.h"

namespace aotpack::linalg {

template <typename T>
int64_t exponential_room(int64_t n) {
  return 8 * Arena::room<T>(n * n) + product_room<T>(n, n, n);
}

namespace detail {

inline constexpr int kDegrees[] = {1, 2, 4, 8, 12, 18};
inline constexpr double kBounds[] = {2.220446049250313e-16, 2.580956802971767e-08, 3.397168839976962e-04,
                                     4.991228871115323e-02, 2.996158913811580e-01, 1.090863719290036e+00};

}  // namespace detail

// out := exp(A), both n x n, of double or Complex<double>; `out` is column-major.
template <typename T>
void exponential(View<const T> a, View<T> out, Arena arena) {
  using R = Real<T>;
  const int64_t n = a.rows;
  R norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    R sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += abs(a(i, j));
    if (std::isnan(sum)) return fill(out, T(sum));
    norm = std::max(norm, sum);
  }
  if (!std::isfinite(norm)) return fill(out, T(std::numeric_limits<R>::quiet_NaN()));
  int index = 0, squarings = 0;
  while (index < 5 && norm > detail::kBounds[index]) ++index;
  const int degree = detail::kDegrees[index];
  if (norm > detail::kBounds[5])
    squarings = std::max(0, static_cast<int>(std::ceil(std::log2(norm / detail::kBounds[5]))));
  int step = 1;
  while (step * step < degree) ++step;
  View<T> powers[6];
  for (int k = 1; k <= step; ++k) {
    powers[k] = columns(arena.take<T>(n * n), n, n);
    if (k == 1) {
      copy(powers[1], a);
      const R factor = std::ldexp(R(1), -squarings);
      scale(n * n, factor, powers[1].data);
    } else {
      fill(powers[k], T(0));
      add_product(powers[k], R(1), powers[k - 1].reading(), powers[1].reading(), arena);
    }
  }
  R coefficients[32];
  coefficients[0] = 1;
  for (int k = 1; k <= degree; ++k) coefficients[k] = coefficients[k - 1] / R(k);
  // ((B_j A^step) + B_j-1) A^step + ...
  View<T> sum = columns(arena.take<T>(n * n), n, n), next = columns(arena.take<T>(n * n), n, n);
  for (int j = degree / step; j >= 0; --j) {
    fill(next, T(0));
    for (int k = j * step; k < (j + 1) * step && k <= degree; ++k) {
      if (k == j * step) {
        for (int64_t i = 0; i < n; ++i) next(i, i) += T(coefficients[k]);
      } else {
        add_scaled(n * n, T(coefficients[k]), powers[k - j * step].data, next.data);
      }
    }
    if (j < degree / step) add_product(next, R(1), sum.reading(), powers[step].reading(), arena);
    std::swap(sum, next);
  }
  for (int k = 0; k < squarings; ++k) {
    fill(next, T(0));
    add_product(next, R(1), sum.reading(), sum.reading(), arena);
    std::swap(sum, next);
  }
  copy(out, sum);
}

}  // namespace aotpack::linalg
