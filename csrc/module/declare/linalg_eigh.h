// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_eigh(AotpackTensor A, const char* UPLO, int32_t compute_v, AotpackTensor* eigenvalues, AotpackTensor* eigenvectors);
// clang-format on
