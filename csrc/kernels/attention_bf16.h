// The two products of attention() for bf16, by the processor's instructions for it (bf16_product.h): of queries with a
// block of keys, and of weights, rounded to bf16, with a block of values. Sums are float.
#pragma once

#include "attention.h"

namespace aotpack::kernels {

// Whether the target has them, they work on this processor, the module has bf16, and there is something to multiply.
bool attention_takes_bf16(const AttentionArgs& args);

// Rows of a tile; at most kMaxBf16Rows.
int64_t attention_bf16_rows();
inline constexpr int64_t kMaxBf16Rows = 32;

// For the rows of one task and blocks of at most `keys` keys, a multiple of kPanel.
class AttentionBf16 {
 public:
  static size_t scratch_bytes(const AttentionArgs& args, int64_t rows, int64_t keys);
  AttentionBf16(const AttentionArgs& args, int64_t rows, int64_t keys, void* scratch);
  ~AttentionBf16();
  AttentionBf16(const AttentionBf16&) = delete;
  AttentionBf16& operator=(const AttentionBf16&) = delete;

  void set_query(int64_t row, const void* q);
  // The next block: `count` keys and values, these and the next ones a stride apart.
  void set_block(const void* k, const void* v, int64_t count);
  // scores[r * keys + j] = q[row + r] . key j for r < count <= attention_bf16_rows() and `from` <= j < `to`;
  // what follows up to a whole panel is written too. `from` is a multiple of kPanel.
  void score(int64_t row, int count, int64_t from, int64_t to, float* scores);
  // The weights of keys `from` <= j < `to`, whole vectors, for row r of a tile: exp(scores[j] - shift). Returns their
  // sum.
  float weights(int r, const float* scores, int64_t from, int64_t to, float shift);
  // sums[r * stride + i] += sum over `from` <= j < `to` of weight j of row r * value j[i] for r < count, i < v_dim
  // rounded up to whole panels. Weights are 0 from `to` up to whole vectors.
  void weigh(int count, int64_t from, int64_t to, float* sums, int64_t stride);

 private:
  struct State;
  State* const state_;
};

}  // namespace aotpack::kernels
