// conv() for bf16 by the processor's instructions for it, with weights in ConvLayout::panels.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// Whether it is taken: linear() would take the instructions, too, and each output reads the same taps.
bool takes_bf16(const ConvArgs& args);

size_t conv_bf16_scratch_bytes(const ConvArgs& args);
void conv_bf16(const ConvArgs& args);

}  // namespace aotpack::kernels
