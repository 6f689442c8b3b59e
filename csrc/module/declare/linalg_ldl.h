// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_ldl_factor(AotpackTensor self, int32_t hermitian, AotpackTensor* LD, AotpackTensor* pivots, AotpackTensor* info);
void aoti_torch_cpu_linalg_ldl_solve(AotpackTensor LD, AotpackTensor pivots, AotpackTensor B, int32_t hermitian, AotpackTensor* ret0);
// clang-format on
