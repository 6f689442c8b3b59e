// linear() for bf16 by the processor's instructions for it (bf16_product.h).
#pragma once

#include "ahead.h"
#include "linear.h"
#include "parallel.h"

namespace aotpack::kernels {

// Whether the target has them, they work on this processor (bf16_works), and the module has bf16.
bool linear_takes_bf16(DType dtype);
// y_dtype is args.dtype or f32, the latter without a residual.
void linear_bf16(const LinearArgs& args, DType y_dtype);

// Part of it on this thread alone: these rows of y, and these panels of its columns. `padded`: zeros follow the rows of
// x up to whole steps (bf16_padded). `next` is read after these weights, as far as this thread goes.
void linear_bf16_part(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded = false,
                      const Weights& next = {});

}  // namespace aotpack::kernels
