// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_cholesky(AotpackTensor A, int32_t upper, AotpackTensor* L, AotpackTensor* info);
void aoti_torch_cpu_cholesky_solve(AotpackTensor self, AotpackTensor input2, int32_t upper, AotpackTensor* ret0);
void aoti_torch_cpu_cholesky_inverse(AotpackTensor self, int32_t upper, AotpackTensor* ret0);
// clang-format on
