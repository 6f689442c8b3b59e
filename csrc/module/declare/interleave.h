// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Parts [n, c, *spatial]; [n, c * parts, *spatial], channels-last, of which channel i * parts + j is channel i of part j.
void aoti_torch_cpu_interleave(const AotpackTensor* parts, int64_t parts_count, AotpackTensor* ret0);
// clang-format on
