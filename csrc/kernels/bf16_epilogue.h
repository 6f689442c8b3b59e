// What is done to sums of bf16_product whose columns are split (bf16_split_panel): columns 0, 2, ..., 30 of a panel lie
// side by side, then 1, 3, ..., 31. So a pair of bf16 that lie side by side in y is in one lane of two vectors.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// The bias of one panel as floats in that order, zero beyond `columns`; bias may be null.
void split_bias(const bf16* bias, int64_t columns, float out[kPanel]);

// y[r][j] = act(sums[r][where j is] + residual[r][j]), rows x columns <= 32; residual may be null. y_dtype is bf16 or,
// without a residual, f32.
void finish_split(const float* sums, int64_t rows, int64_t columns, const bf16* residual, int64_t residual_stride,
                  Act act, DType y_dtype, void* y, int64_t y_stride);

}  // namespace aotpack::kernels
