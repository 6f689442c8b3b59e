// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Elementwise on integers of one dtype and shape: 0 the greatest common divisor, 1 a to the power of b. Contiguous.
void aoti_torch_cpu_integer_binary(AotpackTensor a, AotpackTensor b, int64_t operation, AotpackTensor* ret0);
// clang-format on
