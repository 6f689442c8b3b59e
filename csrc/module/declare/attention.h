// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// q [b, hq, l, d], k [b, hk, s, d], v [b, hk, s, dv], hq a multiple of hk; the result [b, hq, l, dv] lies as [b, l, hq, dv].
void aoti_torch_cpu_attention(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal, double scale, AotpackTensor* ret0);
// The same and, in ret1, the logarithm of each query's sum of exp of scores, [b, hq, l] lying as [b, l, hq]: float, or double of double. Without a scale it is 1 / sqrt(d).
void aoti_torch_cpu_attention_with_lse(AotpackTensor q, AotpackTensor k, AotpackTensor v, AotpackTensor* mask, int32_t is_causal, double* scale, AotpackTensor* ret0, AotpackTensor* ret1);
// The same for patterns that TorchInductor itself recognises as attention: ret0 lies as the query does.
void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(AotpackTensor query, AotpackTensor key, AotpackTensor value, double dropout_p, int32_t is_causal, AotpackTensor* attn_mask, double* scale, AotpackTensor* ret0, AotpackTensor* ret1);
// The gradients of q, k and v, each lying as [b, length, heads, dim].
void aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(AotpackTensor grad_out, AotpackTensor query, AotpackTensor key, AotpackTensor value, AotpackTensor out, AotpackTensor logsumexp, double dropout_p, int32_t is_causal, AotpackTensor* attn_mask, double* scale, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2);
// clang-format on
