// Batched matrix products in double and in integers: right, blocked, not tuned.
#pragma once

#include <type_traits>

#include "parallel.h"

namespace aotpack::kernels {

// As GemmArgs (gemm.h), typed. Sums, alpha and beta are in Y; integers wrap around.
template <class X, class Y = X>
struct PlainGemmArgs {
  int64_t batch, m, n, k;
  const X* a;
  int64_t a_batch, a_row, a_col;
  const X* b;
  int64_t b_batch, b_row, b_col;
  const Y* bias;
  int64_t bias_batch, bias_row, bias_col;
  Y alpha, beta;
  Y* y;
  int64_t y_batch, y_row, y_col;
  int num_threads;
};

namespace detail {
template <class Y, bool integral = std::is_integral_v<Y>>
struct Accumulator {
  using type = Y;
};
template <class Y>
struct Accumulator<Y, true> {
  // Wraps without undefined behaviour: nothing narrower, whose products would be ints.
  using type = std::make_unsigned_t<std::conditional_t<(sizeof(Y) < 4), int32_t, Y>>;
};
}  // namespace detail

template <class X, class Y>
void gemm_plain(const PlainGemmArgs<X, Y>& g) {
  using Sum = typename detail::Accumulator<Y>::type;
  if (g.batch <= 0 || g.m <= 0 || g.n <= 0) return;
  constexpr int64_t kColumns = 64;  // sums of one row that are kept at once
  const int64_t pieces = ceil_div(g.n, kColumns);
  const double work = static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(g.n) *
                      static_cast<double>(max64(g.k, 1));
  parallel(worth_threads(work / 2e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.batch * pieces * g.m, thread, threads);
    for (int64_t at = mine.begin; at < mine.end; ++at) {
      const int64_t row = at % g.m, column = at / g.m % pieces * kColumns, item = at / g.m / pieces;
      const int64_t columns = min64(kColumns, g.n - column);
      Sum sums[kColumns] = {};
      const X* a = g.a + item * g.a_batch + row * g.a_row;
      const X* b = g.b + item * g.b_batch + column * g.b_col;
      for (int64_t i = 0; i < g.k; ++i) {
        const Sum x = static_cast<Sum>(a[i * g.a_col]);
        for (int64_t j = 0; j < columns; ++j) sums[j] += x * static_cast<Sum>(b[i * g.b_row + j * g.b_col]);
      }
      Y* y = g.y + item * g.y_batch + row * g.y_row + column * g.y_col;
      const bool biased = g.bias != nullptr && g.beta != Y(0);
      const Y* bias = biased ? g.bias + item * g.bias_batch + row * g.bias_row + column * g.bias_col : nullptr;
      for (int64_t j = 0; j < columns; ++j) {
        Sum value = static_cast<Sum>(g.alpha) * sums[j];
        if (biased) value += static_cast<Sum>(g.beta) * static_cast<Sum>(bias[j * g.bias_col]);
        y[j * g.y_col] = static_cast<Y>(value);
      }
    }
  });
}

inline void gemm_f64(const PlainGemmArgs<double>& args) { gemm_plain(args); }

// int64 and int32 into the same, int8 into int32.
template <class X, class Y = X>
void gemm_int(const PlainGemmArgs<X, Y>& args) {
  static_assert(std::is_integral_v<X> && std::is_integral_v<Y> && sizeof(Y) >= 4);
  gemm_plain(args);
}

}  // namespace aotpack::kernels
