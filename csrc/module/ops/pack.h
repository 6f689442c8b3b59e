// Weights into the layout of the kernels, for weights that change while a module runs.
#pragma once

#include "tensor.h"

namespace aotpack::module {

// The sizes of a packed convolution weight, by kernels::conv_layout: [groups, panels, taps, inputs, 32],
// [panels, taps, inputs, 32] or [taps, channels].
// `weight` is [oc, c / groups, *kernel], or [c, oc / groups, *kernel] when transposed.
struct PackedConv {
  int32_t rank;
  int64_t sizes[5];
  int64_t numel() const;
};
// Throws Error where `weight` is not a convolution's of so many groups, naming `op`.
PackedConv packed_conv_sizes(const Tensor* weight, int64_t groups, bool transposed, const char* op);
// Fills `packed`, which has room for packed_conv_sizes of elements.
void pack_conv(const Tensor* weight, int64_t groups, bool transposed, void* packed);

}  // namespace aotpack::module
