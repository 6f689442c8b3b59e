// gemm() for bf16 by the processor's instructions for it (bf16_product.h).
#pragma once

#include "gemm.h"

namespace aotpack::kernels {

// Whether the target has them, they work on this processor (bf16_works), and there are rows and columns enough.
bool gemm_takes_bf16(const GemmArgs& args);
size_t gemm_bf16_scratch_bytes(const GemmArgs& args);
// Columns of a row of y lie side by side where possible (gemm.cpp, orient).
void gemm_bf16(const GemmArgs& args);

}  // namespace aotpack::kernels
