// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// 8-bit activations by int8 weights, requantized (csrc/kernels/conv_int8.h). `channels` is int32 [4, columns]: init, the bits of factor and of offset, weight zeros. `limits` is fp32: x_zero, y_zero, low, high, round_first, keep, gain, residual_zero, low_after, high_after, whether there are weight zeros. `result` is 0 fp32, 1 uint8, 2 int8.
// N-d convolution of a batched x; the result is channels-last. Padding is that before each dim, then that after each.
void aoti_torch_cpu_int8_conv(AotpackTensor x, AotpackTensor weight, AotpackTensor channels, AotpackTensor limits, AotpackTensor* residual, int64_t out_channels, const int64_t* kernel, int64_t kernel_len, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, int64_t groups, int64_t result, AotpackTensor* ret0);
// The same for the last dim of x.
void aoti_torch_cpu_int8_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor channels, AotpackTensor limits, AotpackTensor* residual, int64_t out_features, int64_t result, AotpackTensor* ret0);
// clang-format on
