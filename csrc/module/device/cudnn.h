// Convolutions by cuDNN, in place of a launch of this project's kernels.
#pragma once

#include "device/device.h"

namespace aotpack::module::cudnn {

// out = activation(convolution(x, weight) + bias + residual). Dims are depth, height and width; residual and out are
// contiguous with their channels innermost.
struct Convolution {
  const Tensor* x;
  const Tensor* weight;
  const Tensor* bias;      // NULL: none
  const Tensor* residual;  // NULL: none
  const Tensor* out;
  int64_t places;        // of the results of all images
  int64_t channels;      // of a group of the input
  int64_t channels_out;  // of a group of the result
  int64_t groups;
  int64_t sizes[3], sizes_out[3], kernel[3];
  int64_t x_strides[5];
  int64_t weight_strides[5];  // of its first two axes as aten::convolution has them, and of the dims
  int64_t steps[3], pads[3], dilations[3];
  bool is_transposed;
  int32_t activation;
  bool tf32;  // float32 is multiplied in TF32
};

// Whether the library has got the work; otherwise the kernel does it.
bool compute(const Convolution& convolution);

}  // namespace aotpack::module::cudnn
