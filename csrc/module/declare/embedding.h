// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Rows of a table that is stored as a packed linear weight of `rows` outputs (tied embeddings are stored once).
void aoti_torch_cpu_packed_embedding(AotpackTensor weight, AotpackTensor indices, int64_t rows, AotpackTensor* ret0);
// clang-format on
