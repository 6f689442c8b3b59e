// conv_depthwise.h: the part of conv() for one channel per group, vectorised over channels.
#ifndef AOTPACK_KERNELS_CONV_DEPTHWISE_H_
#define AOTPACK_KERNELS_CONV_DEPTHWISE_H_

#include "conv.h"

namespace aotpack::kernels {

// For ConvLayout::depthwise.
size_t conv_depthwise_scratch_bytes(const ConvArgs& args);
void conv_depthwise(const ConvArgs& args);

}  // namespace aotpack::kernels

#endif  // AOTPACK_KERNELS_CONV_DEPTHWISE_H_
