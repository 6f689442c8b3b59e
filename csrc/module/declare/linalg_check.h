// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Fails the call where an element of `info` (int32) is not 0; `api_name` is the function that the model calls. Returns
// `info`.
void aoti_torch_cpu_linalg_check_errors(AotpackTensor info, const char* api_name, int32_t is_matrix, AotpackTensor* ret0);
// clang-format on
