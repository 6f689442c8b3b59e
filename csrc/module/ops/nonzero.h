// Masks as places.
#pragma once

#include "tensor.h"

namespace aotpack::module {

// The places of the non-zeros of a contiguous tensor in row-major order: int64 [rank, count], contiguous.
Tensor* places_of_nonzero(const Tensor* source);

}  // namespace aotpack::module
