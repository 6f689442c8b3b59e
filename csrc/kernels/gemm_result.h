// What gemm() does to sums.
#pragma once

#include "gemm.h"

namespace aotpack::kernels {

inline bool has_bias(const GemmArgs& g) { return g.bias != nullptr && g.beta != 0.0f; }

// y[row.., column..] = beta * bias + alpha * sums, rows x columns of product `item`; changes sums, `stride` apart.
void write_result(const GemmArgs& g, int64_t item, int64_t row, int64_t column, int64_t rows, int64_t columns,
                  float* sums, int64_t stride);

}  // namespace aotpack::kernels
