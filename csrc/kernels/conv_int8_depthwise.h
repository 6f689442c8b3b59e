// conv_int8 where each channel is convolved for itself.
#pragma once

#include "conv_int8.h"

namespace aotpack::kernels {

size_t conv_int8_depthwise_scratch_bytes(const Int8ConvArgs& args);
void conv_int8_depthwise(const Int8ConvArgs& args);

}  // namespace aotpack::kernels
