// Products of small dense blocks in float or double, for kernels that keep both operands in cache.
#pragma once

#include "simd.h"

namespace aotpack::kernels {

// A natural vector of A (float or double).
template <class A>
inline constexpr int kLanes = 4 * kWidth / static_cast<int>(sizeof(A));
template <class A>
struct LanesOf;
template <>
struct LanesOf<float> {
  using type = vf;
  using memory = vf_mem;
};
template <>
struct LanesOf<double> {
  using type = double __attribute__((vector_size(4 * kWidth)));
  typedef double memory __attribute__((vector_size(4 * kWidth), aligned(8), may_alias));
  static_assert(alignof(memory) == 8);
};

// c[i][j] = (add ? c[i][j] : 0) + sum over p < k of a[i * a_row + p * a_column] * b[p * b_row + j] for i < m, j < n.
// n is a multiple of kLanes<A>; a may be read by columns, which costs nothing.
template <class A>
struct BlockProduct {
  int64_t m, n, k;
  const A* a;
  int64_t a_row, a_column;
  const A* b;
  int64_t b_row;
  A* c;
  int64_t c_row;
  bool add;
};

namespace detail {
template <class A, int rows, int vectors>
AOTPACK_INLINE void product_tile(const BlockProduct<A>& g, int64_t i, int64_t j) {
  using V = typename LanesOf<A>::type;
  using Memory = typename LanesOf<A>::memory;
  constexpr int width = kLanes<A>;
  const A* a = g.a + i * g.a_row;
  const A* b = g.b + j;
  A* c = g.c + i * g.c_row + j;
  V sums[rows][vectors] = {};
  for (int64_t p = 0; p < g.k; ++p) {
    V line[vectors];
    AOTPACK_UNROLL
    for (int v = 0; v < vectors; ++v) line[v] = *reinterpret_cast<const Memory*>(b + p * g.b_row + v * width);
    AOTPACK_UNROLL
    for (int r = 0; r < rows; ++r) {
      const A x = a[r * g.a_row + p * g.a_column];
      AOTPACK_UNROLL
      for (int v = 0; v < vectors; ++v) sums[r][v] += x * line[v];
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < rows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      Memory* to = reinterpret_cast<Memory*>(c + r * g.c_row + v * width);
      *to = g.add ? *to + sums[r][v] : sums[r][v];
    }
  }
}

template <class A, int vectors>
void product_columns(const BlockProduct<A>& g, int64_t j) {
#if defined(__AVX512F__) || defined(__aarch64__)
  constexpr int rows = 8;
#else
  constexpr int rows = 5;
#endif
  int64_t i = 0;
  for (; i + rows <= g.m; i += rows) product_tile<A, rows, vectors>(g, i, j);
  for (; i < g.m; ++i) product_tile<A, 1, vectors>(g, i, j);
}
}  // namespace detail

template <class A>
void block_product(const BlockProduct<A>& g) {
  constexpr int64_t width = kLanes<A>;
  int64_t j = 0;
  for (; j + 2 * width <= g.n; j += 2 * width) detail::product_columns<A, 2>(g, j);
  for (; j < g.n; j += width) detail::product_columns<A, 1>(g, j);
}

}  // namespace aotpack::kernels
