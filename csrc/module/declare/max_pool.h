// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// The greatest element of each window of [n, c, h, w], of floats or bytes, or the least one where `scale` (fp32, one number) is negative; the result is channels-last. The lists have a number for h and one for w.
void aoti_torch_cpu_max_pool(AotpackTensor x, AotpackTensor* scale, const int64_t* kernel, int64_t kernel_len, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int32_t ceil_mode, AotpackTensor* ret0);
// clang-format on
