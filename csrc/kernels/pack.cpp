#include "pack.h"

#include "element_types.h"
#include "epilogue.h"

namespace aotpack::kernels {
namespace {

using detail::load4;
using detail::v4;
using detail::v4_mem;

// to[c * to_stride + r] = from[r * from_stride + c] for a 4 x 4 square.
template <class T>
inline void square(const T* from, int64_t from_stride, float* to, int64_t to_stride) {
  const v4 a = load4(from), b = load4(from + from_stride);
  const v4 c = load4(from + 2 * from_stride), d = load4(from + 3 * from_stride);
  const v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const v4 ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<v4_mem*>(to) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *reinterpret_cast<v4_mem*>(to + to_stride) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *reinterpret_cast<v4_mem*>(to + 2 * to_stride) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
  *reinterpret_cast<v4_mem*>(to + 3 * to_stride) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
}

// to[c * to_stride + r] = from[r * from_stride + c], rows x columns.
template <class T>
void transpose(const T* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  constexpr int64_t kBlock = 64;  // columns: the written lines stay in the nearest cache until they are full
  for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
    const int64_t c1 = min64(c0 + kBlock, columns);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      int64_t c = c0;
      for (; c + 4 <= c1; c += 4) square(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
      for (; c < c1; ++c) {
        for (int64_t i = r; i < r + 4; ++i) to[c * to_stride + i] = to_float(from[i * from_stride + c]);
      }
    }
    for (; r < rows; ++r) {
      for (int64_t c = c0; c < c1; ++c) to[c * to_stride + r] = to_float(from[r * from_stride + c]);
    }
  }
}

template <class T>
void gather(const T* from, int64_t row_stride, int64_t col_stride, DType dtype, int64_t rows, int64_t k, float* to,
            int64_t to_stride) {
  if (col_stride == 1) {
    widen_rows(from, row_stride, dtype, rows, k, to, to_stride);
  } else if (row_stride == 1) {
    transpose(from, col_stride, k, rows, to, to_stride);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) to[r * to_stride + i] = to_float(from[r * row_stride + i * col_stride]);
    }
  }
}

}  // namespace

void gather_rows(const void* from, int64_t row_stride, int64_t col_stride, DType dtype, int64_t rows, int64_t k,
                 float* to, int64_t to_stride) {
  with_type(dtype, [&]<class T>() {
    gather(static_cast<const T*>(from), row_stride, col_stride, dtype, rows, k, to, to_stride);
  });
}

void pack_panel(const void* from, int64_t k_stride, int64_t n_stride, DType dtype, int64_t k, int64_t n, float* to) {
  n = min64(n, kPanel);
  gather_rows(from, k_stride, n_stride, dtype, k, n, to, kPanel);
  if (n == kPanel) return;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = n; j < kPanel; ++j) to[i * kPanel + j] = 0.0f;
  }
}

}  // namespace aotpack::kernels
