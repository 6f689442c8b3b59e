// What is done to a finished tile of sums: residual, activation, conversion, store.
#pragma once

#include "micro.h"

namespace aotpack::kernels {

// y[r][j] = act(sums[r][j] + residual[r][j]), rows x columns; residual (null: none) and y in dtype. y may be sums.
void finish(const float* sums, int64_t sums_stride, int64_t rows, int64_t columns, DType dtype, const void* residual,
            int64_t residual_stride, Act act, void* y, int64_t y_stride);

// to[r][i] = from[r][i] as float, rows x k.
void widen_rows(const void* from, int64_t from_stride, DType dtype, int64_t rows, int64_t k, float* to,
                int64_t to_stride);
inline void widen(const void* from, DType dtype, int64_t count, float* to) {
  widen_rows(from, 0, dtype, 1, count, to, 0);
}

// The bias of one panel as floats, zero beyond `columns`; bias may be null.
void panel_bias(const void* bias, DType dtype, int64_t columns, float out[kPanel]);

// Whether a result of `count` floats in rows y_stride apart is to be written past the caches (MicroArgs::stream): they
// would not hold it until the next operator reads it, and memory would be read only to be overwritten. Only vectors
// that the kernel finishes in registers can be.
bool streams(const void* y, int64_t y_stride, int64_t count, Act act);

// Runs the tile `args`, whose y, residual and clamp are set here, and finishes it into y.
void micro_finish(DType b_dtype, int row_count, MicroArgs& args, DType dtype, const void* residual,
                  int64_t residual_stride, Act act, void* y, int64_t y_stride);

}  // namespace aotpack::kernels
