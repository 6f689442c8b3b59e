// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// A dense copy whose dims lie in `order`, from outermost to innermost.
void aoti_torch_cpu_to_layout(AotpackTensor x, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
// clang-format on
