// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Elementwise on float32 or float64 of one dtype and shape: a special function by its number (ops/special.cpp). Of a
// function of one variable, `b` is not read. Contiguous.
void aoti_torch_cpu_special_function(AotpackTensor a, AotpackTensor b, int64_t function, AotpackTensor* ret0);
// clang-format on
