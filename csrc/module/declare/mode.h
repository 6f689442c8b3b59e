// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_mode(AotpackTensor self, int64_t dim, int32_t keepdim, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
