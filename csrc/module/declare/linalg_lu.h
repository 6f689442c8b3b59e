// See ../operators.h. What is made of LU factors.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_lu_factor(AotpackTensor A, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info);
void aoti_torch_cpu_linalg_det(AotpackTensor A, AotpackTensor* result, AotpackTensor* LU, AotpackTensor* pivots);
void aoti_torch_cpu_linalg_slogdet(AotpackTensor A, AotpackTensor* sign, AotpackTensor* logabsdet, AotpackTensor* LU, AotpackTensor* pivots);
void aoti_torch_cpu_linalg_inv(AotpackTensor A, AotpackTensor* inverse, AotpackTensor* info);
// The factors are those of A transposed if `of_transpose`, which is for real tensors.
void aoti_torch_cpu_linalg_solve(AotpackTensor A, AotpackTensor B, int32_t left, int32_t of_transpose, AotpackTensor* result, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info);
void aoti_torch_cpu_linalg_lu_solve(AotpackTensor LU, AotpackTensor pivots, AotpackTensor B, int32_t left, int32_t adjoint, AotpackTensor* ret0);
// clang-format on
