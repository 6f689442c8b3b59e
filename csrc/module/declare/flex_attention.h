// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Attention whose scores functions of the model change and mask (kernels/score_rules.h); layouts as in attention.h. `function` names them: the build writes aotpack_score_functions.
// blocks: nothing, or counts [b, h, rows] and indices [b, h, rows, places] of partial blocks, and the same of full ones. ret1: the logarithm of each query's sum of exp of scores, [b, hq, l].
void aoti_torch_cpu_flex_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, const AotpackTensor* blocks, int64_t blocks_count, const AotpackTensor* operands, int64_t operands_count, const int64_t* numbers, int64_t numbers_count, const char* function, int64_t q_block, int64_t kv_block, double scale, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
