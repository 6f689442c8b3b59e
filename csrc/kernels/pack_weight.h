// Weights into the layouts that linear() and conv() read, at run time and for elements of any meaning.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// From w[group][output][input][tap.., tap.., tap..], any strides in elements, into
//   packed[groups][ceil(outputs / 32)][taps][inputs][32]  zero where outputs are exceeded (linear.h, conv.h).
// A linear's weight is one group with one tap; kernel dims that are missing count 1. ConvLayout::grouped is one group
// of all outputs.
struct PackWeightArgs {
  int64_t elem_size;  // 1, 2, 4 or 8 bytes
  int64_t groups, outputs, inputs, kernel[3];
  const void* w;
  int64_t group_stride, output_stride, input_stride, kernel_strides[3];
  void* packed;  // must not overlap w
  int num_threads;
};

inline int64_t packed_weight_size(const PackWeightArgs& g) {
  return g.groups * ceil_div(g.outputs, kPanel) * kPanel * g.kernel[0] * g.kernel[1] * g.kernel[2] * g.inputs;
}
void pack_weight(const PackWeightArgs& args);

}  // namespace aotpack::kernels
