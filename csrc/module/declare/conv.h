// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// N-d convolution of a batched x; the result is channels-last. `weight` is packed (csrc/kernels/conv.h), and
// for a 3 x 3 kernel may be transformed: [1, ceil(oc / 32), 16, c, 32]. `padding` has a number for each spatial dim,
// or, unless `transposed`, what is before each and then what is after each.
void aoti_torch_cpu_packed_conv(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual, int64_t out_channels, const int64_t* kernel, int64_t kernel_len, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int32_t transposed, const int64_t* output_padding, int64_t output_padding_len, int64_t groups, int64_t act, AotpackTensor* ret0);
// The same with a weight that is computed in the model: packed on every call.
void aoti_torch_cpu_convolution(AotpackTensor input, AotpackTensor weight, AotpackTensor* bias, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int32_t transposed, const int64_t* output_padding, int64_t output_padding_len, int64_t groups, AotpackTensor* ret0);
// clang-format on
