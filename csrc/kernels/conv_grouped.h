// The part of conv() for groups of less than a panel of outputs, vectorised over outputs of any group.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// For ConvLayout::grouped.
size_t conv_grouped_scratch_bytes(const ConvArgs& args);
void conv_grouped(const ConvArgs& args);

}  // namespace aotpack::kernels
