// Scaled dot-product attention, softmax(scale * q k^T + mask) v, without ever holding the matrix of
// scores.
#pragma once

#include "score_rules.h"

namespace aotpack::kernels {

// Strides count elements; the innermost dim (head_dim, v_dim) has stride 1. Query head h reads key and value head
// h / (q_heads / kv_heads). A query that may look at no key gives 0, as in torch.
struct AttentionArgs {
  DType dtype;  // of q, k, v and y; scores and sums are float
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, v_dim;
  const void *q, *k, *v;                             // [batch, heads, length, dim]
  int64_t q_strides[3], k_strides[3], v_strides[3];  // batch, head, position
  const void* mask;                                  // [batch, q_heads, q_len, kv_len] or null
  int mask_kind;            // 0 none, 1 bool bytes (true: takes part), 2 additive in dtype, 3 additive in float
  int64_t mask_strides[4];  // batch, head, query, key; 0 repeats
  bool causal;              // key j takes part for query i when j <= i (torch's top-left alignment)
  float scale;
  const ScoreRules* rules;  // what the model does to scores and which keys it skips, or null
  void* y;                  // [batch, q_heads, q_len, v_dim]; must not overlap the inputs
  int64_t y_strides[3];
  float*
      lse;  // [batch, q_heads, q_len] dense, log of the sum of exp of the scores (-inf where there are none); or null
  int num_threads;
  void* scratch;  // attention_scratch_bytes of it, any alignment
};

// Depends on the sizes and num_threads; the pointers are not looked at.
size_t attention_scratch_bytes(const AttentionArgs& args);
void attention(const AttentionArgs& args);

}  // namespace aotpack::kernels
