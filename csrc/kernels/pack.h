// Brings strided matrices of any dtype into the float layouts that the tiles are computed from.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// to[r * to_stride + i] = from[r * row_stride + i * col_stride] as float, rows x k.
void gather_rows(const void* from, int64_t row_stride, int64_t col_stride, DType dtype, int64_t rows, int64_t k,
                 float* to, int64_t to_stride);

// One panel: to[i * 32 + j] = from[i * k_stride + j * n_stride] as float for i < k and j < n, zero for n <= j < 32.
void pack_panel(const void* from, int64_t k_stride, int64_t n_stride, DType dtype, int64_t k, int64_t n, float* to);

}  // namespace aotpack::kernels
