// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Uniform integers in [low, high). Generated code draws the seeds of its own Philox streams with it.
void aoti_torch_cpu_randint_low_out(AotpackTensor out, int64_t low, int64_t high, const int64_t* size, int64_t size_len);
// clang-format on
