// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// y[..., n] = act(x[..., k] @ W + bias + residual) with W = q * scale + offset; `weight` has q of 4 or 8 bits (csrc/kernels/quantized_linear.h).
void aoti_torch_cpu_quantized_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor scale, AotpackTensor* offset, AotpackTensor* bounds, AotpackTensor* bias, AotpackTensor* residual, int64_t out_features, int64_t group, int64_t act, AotpackTensor* ret0);
// clang-format on
