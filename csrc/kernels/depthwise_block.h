// A depthwise 2-d convolution with the pointwise (1 x 1) ones around it, as in MobileNets: what is between them stays
// in the cache.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// One convolution with its epilogue. Weights are packed as conv.h says.
struct BlockStage {
  const void* w_packed;  // null: there is no such convolution
  const void* bias;      // or null
  Act act;
};

// x is [n, in.., c], y and the residual are [n, out.., oc], dense but for x_pixel. `expand` makes `channels` of c
// channels, then comes the depthwise convolution, then `project` makes oc of them; expand or project may be missing.
// Each result is rounded to the dtype, as if the three were called one after the other.
struct DepthwiseBlockArgs {
  DType dtype;
  int64_t n, c, channels, oc;
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];  // height, width; padding is what is before
  const void* x;
  int64_t x_pixel;  // elements from one pixel of x to the next, at least c
  BlockStage expand, depthwise, project;
  const void* residual;  // or null; added before the last activation
  void* y;               // must not overlap x
  int num_threads;
  void* scratch;  // depthwise_block_scratch_bytes of it, any alignment
};

// The depthwise convolution alone, without x, the residual, y and scratch.
ConvArgs depthwise_of(const DepthwiseBlockArgs& args);

// Depends on the dtype, the sizes, which weights are null, and num_threads.
size_t depthwise_block_scratch_bytes(const DepthwiseBlockArgs& args);
void depthwise_block(const DepthwiseBlockArgs& args);

}  // namespace aotpack::kernels
