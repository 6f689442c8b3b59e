// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// mode 0 sum, 1 mean, 2 max; padding_idx -1 for none. [bags, dim].
void aoti_torch_cpu_embedding_bag(AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, int64_t mode, AotpackTensor* per_sample_weights, int32_t include_last_offset, int64_t padding_idx, AotpackTensor* ret0);
// clang-format on
