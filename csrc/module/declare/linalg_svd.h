// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_svd(AotpackTensor A, int32_t full_matrices, int32_t compute_uv, AotpackTensor* U, AotpackTensor* S, AotpackTensor* Vh);
// clang-format on
