// linear() for bf16 by AMX's tiles.
#pragma once

#include "linear.h"
#include "parallel.h"

namespace aotpack::kernels {

// linear_bf16_part (linear_bf16.h) for targets with AMX, whatever the number of rows.
void linear_bf16_tiles(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded);

}  // namespace aotpack::kernels
