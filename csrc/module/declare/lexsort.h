// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// The order of the rows of self, [rows, columns], by their first column, then the second, ...: int64 [rows]. Stable;
// NaN is greatest.
void aoti_torch_cpu_sort_rows(AotpackTensor self, AotpackTensor* ret0);
// clang-format on
