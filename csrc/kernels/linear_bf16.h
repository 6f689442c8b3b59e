// linear() for bf16 by the processor's instructions for it: called where kBf16Rows (bf16_product.h) is not 0.
#pragma once

#include "bf16_product.h"
#include "linear.h"
#include "parallel.h"

namespace aotpack::kernels {

// Part of linear(args) on this thread alone: these rows of y, and these panels of its columns. y_dtype is args.dtype or
// f32, the latter without a residual. `padded`: zeros follow the rows of x up to whole steps (bf16_padded).
void linear_bf16_part(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded = false);

}  // namespace aotpack::kernels
