// Y = act(x @ B + bias + residual) with a constant B that was packed at build time.
#pragma once

#include "knobs.h"
#include "types.h"

namespace aotpack::kernels {

// B is [k, n] (for torch's linear: weight transposed), packed[ceil(n / 32)][k][32], zero where n is exceeded.
struct LinearArgs {
  DType dtype;  // of x, B, bias, residual and y; sums are float
  int64_t m, n, k;
  const void* x;  // [m, k], rows x_stride elements apart, inner stride 1
  int64_t x_stride;
  const void* w_packed;
  const void* bias;      // [n] or null
  const void* residual;  // [m, n] or null; added after the bias, before the activation; may be y
  int64_t residual_stride;
  Act act;
  void* y;  // [m, n]; must not overlap x
  int64_t y_stride;
  int num_threads;  // at most so many are used
  Knobs knobs = {};
};

// Depth, bytes of B at a time, how the grid is shared, staging, threads (linear_plan.h).
KnobSizes linear_knobs(const LinearArgs& args);

void linear(const LinearArgs& args);
// The same with y in float whatever dtype is; there must be no residual.
void linear_to_float(const LinearArgs& args);

}  // namespace aotpack::kernels
