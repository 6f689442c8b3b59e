// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// interpolation_mode: 0 linear, 1 nearest, 2 cubic (2-d alone); padding_mode: 0 zeros, 1 border, 2 reflection.
void aoti_torch_cpu_grid_sampler_3d(AotpackTensor input, AotpackTensor grid, int64_t interpolation_mode, int64_t padding_mode, int32_t align_corners, AotpackTensor* ret0);
void aoti_torch_cpu_grid_sampler_2d_backward(AotpackTensor grad_output, AotpackTensor input, AotpackTensor grid, int64_t interpolation_mode, int64_t padding_mode, int32_t align_corners, const int32_t* output_mask, int64_t output_mask_len, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_grid_sampler_3d_backward(AotpackTensor grad_output, AotpackTensor input, AotpackTensor grid, int64_t interpolation_mode, int64_t padding_mode, int32_t align_corners, const int32_t* output_mask, int64_t output_mask_len, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
