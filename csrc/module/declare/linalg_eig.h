// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_linalg_eig(AotpackTensor self, AotpackTensor* eigenvalues, AotpackTensor* eigenvectors);
void aoti_torch_cpu_linalg_eigvals(AotpackTensor self, AotpackTensor* ret0);
// clang-format on
