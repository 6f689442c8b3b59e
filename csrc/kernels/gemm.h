// Batched matrix products of two operands that are only known at run time.
#pragma once

#include "knobs.h"
#include "types.h"

namespace aotpack::kernels {

// y[i] = beta * bias[i] + alpha * (a[i] @ b[i]) for i < batch. a[i] is [m, k], b[i] [k, n], bias[i] and y[i] [m, n],
// each with any strides in elements; 0 repeats an operand along a dim (not for y). With beta == 0 or a null bias the
// bias is not read, so that NaN in it does not matter.
struct GemmArgs {
  DType dtype;  // of all four; sums are float
  int64_t batch, m, n, k;
  const void* a;
  int64_t a_batch, a_row, a_col;
  const void* b;
  int64_t b_batch, b_row, b_col;
  const void* bias;
  int64_t bias_batch, bias_row, bias_col;
  float alpha, beta;
  void* y;  // must not overlap a or b; may be bias with the same strides
  int64_t y_batch, y_row, y_col;
  int num_threads;
  void* scratch;  // gemm_scratch_bytes of it, any alignment
  Knobs knobs = {};
};

// What is turned: depth, bytes of b at a time, how the grid is shared, threads.
enum GemmKnob : int { kGemmDepth, kGemmBytes, kGemmGrid, kGemmThreads };
KnobSizes gemm_knobs(const GemmArgs& args);

// Depends on the sizes, the strides, the dtype, num_threads and the knobs; the pointers are not looked at.
size_t gemm_scratch_bytes(const GemmArgs& args);
void gemm(const GemmArgs& args);

}  // namespace aotpack::kernels
