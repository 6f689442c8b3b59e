// The gradients of scaled dot-product attention (attention.h), without ever holding the matrix of
// scores: it is computed once more in blocks, from the logarithms of the sums that the forward has kept.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// Sizes, heads, masks and strides (batch, head, position; the innermost dim dense) as in AttentionArgs. A query that
// may look at no key has no gradients and gives none.
struct AttentionBackwardArgs {
  bool in_double;  // everything is double; dtype is not read then
  DType dtype;     // of q, k, v, y, dy, dq, dk, dv and a mask of kind 2; lse is float
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, v_dim;
  const void *q, *k, *v, *y, *dy;
  int64_t q_strides[3], k_strides[3], v_strides[3], y_strides[3], dy_strides[3];
  const void* lse;  // [batch, q_heads, q_len]
  int64_t lse_strides[3];
  const void* mask;
  int mask_kind;
  int64_t mask_strides[4];
  bool causal;
  double scale;
  void *dq, *dk, *dv;  // of the shapes of q, k, v; overlap nothing
  int64_t dq_strides[3], dk_strides[3], dv_strides[3];
  int num_threads;
  void* scratch;  // attention_backward_scratch_bytes of it, any alignment
};

// Depends on the sizes, in_double and num_threads; linear in the lengths.
size_t attention_backward_scratch_bytes(const AttentionBackwardArgs& args);
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace aotpack::kernels
