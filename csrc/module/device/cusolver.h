// Operators of module/declare/linalg_*.h by cuSOLVER. Each returns whether it has; otherwise the host computes.
#pragma once

#include "operators.h"
#include "tensor.h"

// clang-format off
namespace aotpack::module::cusolver {

bool linalg_cholesky(AotpackTensor A, int32_t upper, AotpackTensor* L, AotpackTensor* info);
bool linalg_lu_factor(AotpackTensor A, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info);
bool linalg_inv(AotpackTensor A, AotpackTensor* inverse, AotpackTensor* info);
bool linalg_solve(AotpackTensor A, AotpackTensor B, int32_t left, int32_t of_transpose, AotpackTensor* result, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info);
bool linalg_eigh(AotpackTensor A, const char* UPLO, int32_t compute_v, AotpackTensor* eigenvalues, AotpackTensor* eigenvectors);
bool linalg_qr(AotpackTensor A, const char* mode, AotpackTensor* Q, AotpackTensor* R);

}  // namespace aotpack::module::cusolver
// clang-format on
