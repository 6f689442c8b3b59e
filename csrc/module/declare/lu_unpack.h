// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_lu_unpack(AotpackTensor LU_data, AotpackTensor LU_pivots, int32_t unpack_data, int32_t unpack_pivots, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2);
// clang-format on
