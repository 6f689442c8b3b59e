// Brings matrices of bf16 with any strides into the layouts of bf16_product.h.
#pragma once

#include "element_types.h"

namespace aotpack::kernels {

// Pairs up k rows of `columns` <= 32: paired[i / kBf16Run][j][i % kBf16Run] = from[i * k_stride + j * n_stride]. Beyond
// k, up to bf16_padded(k), and beyond the columns are zeros.
void bf16_pair_columns(const bf16* from, int64_t k_stride, int64_t n_stride, int64_t k, int64_t columns, bf16* paired);

// to[r * to_stride + i] = from[r * row_stride + i * k_stride] for r < rows and i < k; zeros follow up to whole vectors
// of 32, and rows up to a multiple of 16 may be written.
void bf16_gather_rows(const bf16* from, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, bf16* to,
                      int64_t to_stride);

}  // namespace aotpack::kernels
