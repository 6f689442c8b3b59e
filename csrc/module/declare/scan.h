// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_cumsum(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0);
void aoti_torch_cpu_cumprod(AotpackTensor self, int64_t dim, int32_t* dtype, AotpackTensor* ret0);
void aoti_torch_cpu_logcumsumexp(AotpackTensor self, int64_t dim, AotpackTensor* ret0);
void aoti_torch_cpu_cummax(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_cummin(AotpackTensor self, int64_t dim, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
