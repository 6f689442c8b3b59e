// Products of matrices and triangular systems, of any strides: what the blocked algorithms spend time in.
//
// Packed panels and a register tile, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
// (2008). One thread: batches are what is spread over threads.
#pragma once

#include <cstring>

#include "kernels/linalg/view.h"

namespace aotpack::linalg {

namespace detail {

#if defined(__AVX512F__)
inline constexpr int kBytes = 64, kTileCols = 8;
#elif defined(__AVX__)
inline constexpr int kBytes = 32, kTileCols = 4;
#else
inline constexpr int kBytes = 16, kTileCols = 4;
#endif

template <typename R>
using Lanes __attribute__((vector_size(kBytes))) = R;

// The tile of a product: two vectors of rows, for complex numbers one of real and one of imaginary parts.
template <typename T>
struct Tile {
  using R = Real<T>;
  using V = Lanes<R>;
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(R));
  static constexpr int kRows = is_complex<T> ? kLanes : 2 * kLanes;
  static constexpr int kCols = kTileCols;
  static constexpr int64_t kDepth = 192, kBlockRows = 96 / kRows * kRows + kRows, kBlockCols = 512;
  // Numbers of R in what one step in depth takes of A and of B.
  static constexpr int kStepA = 2 * kLanes, kStepB = is_complex<T> ? 2 * kCols : kCols;

  // sums[j][0, 1]: rows 0 and 1 of column j, or real and imaginary parts.
  static void multiply(int64_t depth, const R* a, const R* b, R* sums) {
    V acc[kCols][2] = {};
    for (int64_t k = 0; k < depth; ++k, a += kStepA, b += kStepB) {
      V a0, a1;
      std::memcpy(&a0, a, kBytes);
      std::memcpy(&a1, a + kLanes, kBytes);
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) {
        if constexpr (is_complex<T>) {
          acc[j][0] += a0 * b[2 * j] - a1 * b[2 * j + 1];
          acc[j][1] += a0 * b[2 * j + 1] + a1 * b[2 * j];
        } else {
          acc[j][0] += a0 * b[j];
          acc[j][1] += a1 * b[j];
        }
      }
    }
    std::memcpy(sums, acc, sizeof(acc));
  }
};

inline int64_t rounded(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Panels of `width` rows, real parts before imaginary ones; rows beyond the end are 0.
template <int Width, bool Interleaved, typename T>
void pack(View<const T> a, Real<T>* out) {
  using R = Real<T>;
  for (int64_t i0 = 0; i0 < a.rows; i0 += Width) {
    const int64_t count = std::min<int64_t>(Width, a.rows - i0);
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t i = 0; i < Width; ++i) {
        const T x = i < count ? a.get(i0 + i, k) : T(0);
        if constexpr (!is_complex<T>) {
          out[i] = x;
        } else if constexpr (Interleaved) {
          out[2 * i] = x.re, out[2 * i + 1] = x.im;
        } else {
          out[i] = x.re, out[Width + i] = x.im;
        }
      }
      out += Width * static_cast<int64_t>(sizeof(T) / sizeof(R));
    }
  }
}

template <typename T>
void multiply_small(View<T> c, Real<T> alpha, View<const T> a, View<const T> b) {
  for (int64_t j = 0; j < c.cols; ++j) {
    for (int64_t k = 0; k < a.cols; ++k) {
      const T factor = b.get(k, j) * alpha;
      if (!a.conjugate) {
        add_scaled(c.rows, factor, a.data + k * a.cs, a.rs, c.data + j * c.cs, c.rs);
      } else {
        for (int64_t i = 0; i < c.rows; ++i) c(i, j) += a.get(i, k) * factor;
      }
    }
  }
}

}  // namespace detail

// Workspace of `add_product` with no dim beyond these.
template <typename T>
int64_t product_room(int64_t m, int64_t n, int64_t k) {
  using Tile = detail::Tile<T>;
  const int64_t depth = std::min(k, Tile::kDepth);
  return Arena::room<T>(depth * detail::rounded(std::min(m, Tile::kBlockRows), Tile::kRows)) +
         Arena::room<T>(depth * detail::rounded(std::min(n, Tile::kBlockCols), Tile::kCols));
}

// C += alpha A B. C overlaps neither.
template <typename T>
void add_product(View<T> c, Real<T> alpha, View<const T> a, View<const T> b, Arena arena) {
  using Tile = detail::Tile<T>;
  using R = Real<T>;
  if (c.rows == 0 || c.cols == 0 || a.cols == 0) return;
  if (c.rows * c.cols * a.cols <= 2048 || c.cols == 1) return detail::multiply_small(c, alpha, a, b);
  const int64_t depth_most = std::min(a.cols, Tile::kDepth);
  R* left = reinterpret_cast<R*>(
      arena.take<T>(depth_most * detail::rounded(std::min(c.rows, Tile::kBlockRows), Tile::kRows)));
  R* right = reinterpret_cast<R*>(
      arena.take<T>(depth_most * detail::rounded(std::min(c.cols, Tile::kBlockCols), Tile::kCols)));
  R sums[2 * Tile::kCols * Tile::kLanes];
  for (int64_t j0 = 0; j0 < c.cols; j0 += Tile::kBlockCols) {
    const int64_t n = std::min(Tile::kBlockCols, c.cols - j0);
    for (int64_t k0 = 0; k0 < a.cols; k0 += Tile::kDepth) {
      const int64_t depth = std::min(Tile::kDepth, a.cols - k0);
      detail::pack<Tile::kCols, true>(b.block(k0, j0, depth, n).transposed(), right);
      for (int64_t i0 = 0; i0 < c.rows; i0 += Tile::kBlockRows) {
        const int64_t m = std::min(Tile::kBlockRows, c.rows - i0);
        detail::pack<Tile::kRows, false>(a.block(i0, k0, m, depth), left);
        for (int64_t j = 0; j < n; j += Tile::kCols) {
          const int64_t cols = std::min<int64_t>(Tile::kCols, n - j);
          for (int64_t i = 0; i < m; i += Tile::kRows) {
            const int64_t rows = std::min<int64_t>(Tile::kRows, m - i);
            Tile::multiply(depth, left + i / Tile::kRows * Tile::kStepA * depth,
                           right + j / Tile::kCols * Tile::kStepB * depth, sums);
            for (int64_t jj = 0; jj < cols; ++jj) {
              const R* sum = sums + 2 * Tile::kLanes * jj;
              T* to = &c(i0 + i, j0 + j + jj);
              for (int64_t ii = 0; ii < rows; ++ii) {
                if constexpr (is_complex<T>) {
                  to[ii * c.rs] += T(alpha * sum[ii], alpha * sum[Tile::kLanes + ii]);
                } else {
                  to[ii * c.rs] += alpha * sum[ii];
                }
              }
            }
          }
        }
      }
    }
  }
}

inline constexpr int64_t kBlock = 32;

// Workspace of `solve_triangular` for an n x n matrix and m right sides.
template <typename T>
int64_t triangular_room(int64_t n, int64_t m) {
  return n <= kBlock ? 0 : product_room<T>(n, m, kBlock);
}

namespace detail {

// The diagonal block: at most kBlock rows.
template <typename T>
void solve_block(View<const T> a, bool lower, bool unit, View<T> b) {
  T own[kBlock * kBlock];
  const int64_t n = a.rows;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = lower ? j : 0; i < (lower ? n : j + 1); ++i) own[i + j * kBlock] = a.get(i, j);
  const bool by_rows = b.cs == 1 && b.rs != 1;
  const int64_t strips = by_rows ? 1 : b.cols;
  for (int64_t strip = 0; strip < strips; ++strip) {
    T* x = by_rows ? b.data : b.column(strip);
    const int64_t width = by_rows ? b.cols : 1;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t k = lower ? step : n - 1 - step;
      T* row = x + k * b.rs;
      if (!unit) {
        for (int64_t j = 0; j < width; ++j) row[j] = row[j] / own[k + k * kBlock];
      }
      const int64_t first = lower ? k + 1 : 0, count = lower ? n - k - 1 : k;
      if (count == 0) continue;
      const T* column = own + first + k * kBlock;
      if (by_rows) {
        for (int64_t i = 0; i < count; ++i) add_scaled(width, -column[i], row, x + (first + i) * b.rs);
      } else {
        add_scaled(count, -*row, column, 1, x + first * b.rs, b.rs);
      }
    }
  }
}

}  // namespace detail

// B := A^-1 B, of a triangular A whose other triangle (and diagonal, if it is `unit`) is not read. X A = B is the same
// of transposed views.
template <typename T>
void solve_triangular(View<const T> a, bool lower, bool unit, View<T> b, Arena arena) {
  const int64_t n = a.rows;
  if (n == 0 || b.cols == 0) return;
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t k = (lower ? step : blocks - 1 - step) * kBlock, size = std::min(kBlock, n - k);
    const View<T> solved = b.block(k, 0, size, b.cols);
    detail::solve_block(a.block(k, k, size, size), lower, unit, solved);
    const int64_t first = lower ? k + size : 0, count = lower ? n - k - size : k;
    add_product(b.block(first, 0, count, b.cols), Real<T>(-1), a.block(first, k, count, size), solved.reading(), arena);
  }
}

}  // namespace aotpack::linalg
