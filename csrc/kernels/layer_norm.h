// Rows less their mean, divided by their standard deviation.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// y = (x - mean) / sqrt(variance + eps) * weight + bias, row by row; the variance is that of all k elements. Sums and
// results are float, also of halves.
struct LayerNormArgs {
  DType dtype;
  int64_t rows, k;
  const void* x;  // rows, x_stride elements apart
  int64_t x_stride;
  const void* weight;  // [k] or null
  const void* bias;    // [k] or null
  float eps;
  void* y;  // [rows, k]; no part of x
  int num_threads;
};

void layer_norm(const LayerNormArgs& args);

}  // namespace aotpack::kernels
