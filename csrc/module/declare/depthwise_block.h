// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// A depthwise 2-d convolution with the pointwise ones before and after it, where there are weights for them; the result
// is channels-last. Weights are packed (csrc/kernels/conv.h). `padding` is as packed_conv's, `acts` are the three
// activations.
void aoti_torch_cpu_depthwise_block(AotpackTensor x, AotpackTensor* expand_weight, AotpackTensor* expand_bias, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* project_weight, AotpackTensor* project_bias, AotpackTensor* residual, int64_t out_channels, const int64_t* kernel, int64_t kernel_len, const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation, int64_t dilation_len, const int64_t* acts, int64_t acts_len, AotpackTensor* ret0);
// clang-format on
