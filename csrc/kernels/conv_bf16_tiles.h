// conv() for bf16 by AMX's tiles, where windows are read in place.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// Whether it applies to a convolution that takes_bf16.
bool takes_bf16_tiles(const ConvArgs& args);

// The channels of x are the last of its dimensions, whatever args.planar is.
size_t conv_bf16_tiles_scratch_bytes(const ConvArgs& args);
void conv_bf16_tiles(const ConvArgs& args);

}  // namespace aotpack::kernels
