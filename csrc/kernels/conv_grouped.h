// conv_grouped.h: the part of conv() for groups of less than a panel of outputs, vectorised over outputs of any group.
#ifndef AOTPACK_KERNELS_CONV_GROUPED_H_
#define AOTPACK_KERNELS_CONV_GROUPED_H_

#include "conv.h"

namespace aotpack::kernels {

// For ConvLayout::grouped.
size_t conv_grouped_scratch_bytes(const ConvArgs& args);
void conv_grouped(const ConvArgs& args);

}  // namespace aotpack::kernels

#endif  // AOTPACK_KERNELS_CONV_GROUPED_H_
