// conv_winograd.h: the part of conv() for 3 x 3 kernels whose weights come transformed.
#ifndef AOTPACK_KERNELS_CONV_WINOGRAD_H_
#define AOTPACK_KERNELS_CONV_WINOGRAD_H_

#include "conv.h"

namespace aotpack::kernels {

size_t conv_winograd_scratch_bytes(const ConvArgs& args);
void conv_winograd(const ConvArgs& args);

}  // namespace aotpack::kernels

#endif  // AOTPACK_KERNELS_CONV_WINOGRAD_H_
