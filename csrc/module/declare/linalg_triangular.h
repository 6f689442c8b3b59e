// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_solve_triangular(AotpackTensor A, AotpackTensor B, int32_t upper, int32_t left, int32_t unitriangular, AotpackTensor* ret0);
void aoti_torch_cpu_triangular_solve(AotpackTensor self, AotpackTensor A, int32_t upper, int32_t transpose, int32_t unitriangular, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
