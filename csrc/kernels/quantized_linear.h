// Y = act(x @ B + bias + residual) with a constant B of 4 or 8 bits, dequantized in registers.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// B is [k, n] in panels of 32 columns: B[i][j] = q[i][j] * scale[g][j] + offset[g][j] with g = i / group, or the group
// of unequal ones that has row i.
struct QuantizedLinearArgs {
  DType dtype;  // of x, bias, residual and y; sums are float
  int64_t m, n, k;
  const void* x;  // [m, k], rows x_stride elements apart, inner stride 1
  int64_t x_stride;
  int bits;  // 4 or 8
  int64_t group;
  const int32_t*
      bounds;       // null, or [bounded + 1], rising from 0 to k: group g is of the rows [bounds[g], bounds[g + 1])
  int64_t bounded;  // how many groups there are then
  // 8 bits: int8 q[ceil(n / 32)][k][32]. 4 bits: uint8 [ceil(n / 32)][k][16], of which byte j has q + 8 of the columns
  // j, in its low half, and j + 16.
  const void* w_packed;
  const float* scale;    // [ceil(n / 32)][groups][32], readable beyond n
  const float* offset;   // the same, or null for zeros
  const void* bias;      // [n] or null
  const void* residual;  // [m, n] or null; added after the bias, before the activation; may be y
  int64_t residual_stride;
  Act act;
  void* y;  // [m, n]; must not overlap x
  int64_t y_stride;
  int num_threads;
  void* scratch;  // quantized_linear_scratch_bytes of it, any alignment
};

// Depends on the sizes, the dtype, bits, group, bounded, num_threads and whether there are offsets.
size_t quantized_linear_scratch_bytes(const QuantizedLinearArgs& args);
// Scales and offsets of a group are applied to sums over it where rows are few: an infinite x may then be NaN in y.
void quantized_linear(const QuantizedLinearArgs& args);

}  // namespace aotpack::kernels
