// The part of conv() for 3 x 3 kernels whose weights come transformed.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

size_t conv_winograd_scratch_bytes(const ConvArgs& args);
void conv_winograd(const ConvArgs& args);

}  // namespace aotpack::kernels
