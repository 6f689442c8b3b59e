// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Rows along the last dim of x, each less its mean and divided by its standard deviation, times weight, plus bias.
void aoti_torch_cpu_layer_norm(AotpackTensor x, AotpackTensor* weight, AotpackTensor* bias, double eps, AotpackTensor* ret0);
// clang-format on
