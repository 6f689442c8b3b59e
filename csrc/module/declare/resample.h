// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// x [batch, channels, *spatial] at `size` places of each spatial dim; contiguous. `mode`: 0 nearest and 1 nearest-exact
// (backward alone), 2 linear, 3 cubic; 4 linear, 5 cubic, 6 Lanczos, all three with antialiasing, and of bytes too. `scales`: the factor that the user
// gave for each dim, 0 for none.
void aoti_torch_cpu_resample(AotpackTensor x, const int64_t* size, int64_t size_len, int64_t mode, int32_t align_corners, const double* scales, int64_t scales_len, AotpackTensor* ret0);
// Its gradient by x, whose spatial sizes are `size`.
void aoti_torch_cpu_resample_backward(AotpackTensor gradient, const int64_t* size, int64_t size_len, int64_t mode, int32_t align_corners, const double* scales, int64_t scales_len, AotpackTensor* ret0);
// clang-format on
