// Products of two computed matrices, or batches of them.
#pragma once

#include "tensor.h"

namespace aotpack::module {

// out = beta * added + alpha * (first @ second). Ranks 2 and 3, any strides; `added`, which may be null, broadcasts to
// the result. Operands are of one dtype, which is the result's, or of bytes with a result of int32. `out` overlaps
// none of the factors.
void multiply(Tensor* out, Tensor* added, Tensor* first, Tensor* second, double beta, double alpha);

}  // namespace aotpack::module
