// Attention (attention.h) in double.
#pragma once

#include "score_rules.h"

namespace aotpack::kernels {

// As AttentionArgs; q, k, v, y, lse and a mask of kind 2 are of double.
struct AttentionDoubleArgs {
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, v_dim;
  const double *q, *k, *v;
  int64_t q_strides[3], k_strides[3], v_strides[3];
  const void* mask;
  int mask_kind;
  int64_t mask_strides[4];
  bool causal;
  double scale;
  const ScoreRules* rules;
  double* y;
  int64_t y_strides[3];
  double* lse;
  int num_threads;
  void* scratch;  // attention_double_scratch_bytes of it, any alignment
};

size_t attention_double_scratch_bytes(const AttentionDoubleArgs& args);
void attention_double(const AttentionDoubleArgs& args);

}  // namespace aotpack::kernels
