// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// y[..., n] = act(x[..., k] @ W + bias + residual); `weight` is packed (csrc/kernels/linear.h).
void aoti_torch_cpu_packed_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual, int64_t out_features, int64_t act, AotpackTensor* ret0);
// clang-format on
