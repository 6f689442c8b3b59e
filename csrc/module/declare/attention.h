// attention.h: see ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
/// q [b, hq, l, d], k [b, hk, s, d], v [b, hk, s, dv], hq a multiple of hk; the result [b, hq, l, dv] lies as [b, l, hq, dv].
void aoti_torch_cpu_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal, double scale, AotpackTensor* ret0);
void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AotpackTensor query, AotpackTensor key, AotpackTensor value, double dropout_p, int32_t is_causal, AotpackTensor* attn_mask, double* scale, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
