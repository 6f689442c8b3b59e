// The input of a convolution of bf16 with its padding, for kernels that read windows in place.
#pragma once

#include "conv.h"
#include "parallel.h"

namespace aotpack::kernels {

// Copies some of the rows of n images of size[0] x size[1] x size[2] pixels, which lie `pixel` elements apart (no less
// than the channels; what is between is not written). What lies outside of x is zero.
void copy_with_padding(const ConvArgs& args, const int64_t* size, int64_t pixel, bf16* to, Range rows);

}  // namespace aotpack::kernels
