// The greatest element of each window, channel by channel.
#pragma once

#include "types.h"

namespace aotpack::kernels {

enum class PoolType : int32_t { f32, bf16, f16, u8, s8 };

// x is n images of in[0] x in[1] pixels and y n of out[0] x out[1], with the c channels of a pixel side by side; pixels
// of x lie x_step elements apart, y is dense. What is outside of x does not count. NaN is greater than all else.
struct MaxPoolArgs {
  PoolType type;
  int64_t n, c;
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
  const void* x;
  int64_t x_step;
  void* y;             // no part of x
  bool least = false;  // of bytes: their least element, that of the greatest value where their scale is negative
  int num_threads;
};

void max_pool(const MaxPoolArgs& args);

}  // namespace aotpack::kernels
