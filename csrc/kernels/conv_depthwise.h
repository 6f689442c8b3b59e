// The part of conv() for one channel per group, vectorised over channels.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// For ConvLayout::depthwise.
size_t conv_depthwise_scratch_bytes(const ConvArgs& args);
void conv_depthwise(const ConvArgs& args);

}  // namespace aotpack::kernels
