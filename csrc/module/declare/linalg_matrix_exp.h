// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_matrix_exp(AotpackTensor self, AotpackTensor* ret0);
// clang-format on
