// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// A copy of x, row-major; the call fails with `message` unless all elements are in [low, high].
void aoti_torch_cpu_check_bounds(AotpackTensor x, double low, double high, const char* message, AotpackTensor* ret0);
// clang-format on
