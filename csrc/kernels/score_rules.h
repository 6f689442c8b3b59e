// What a model does to the scores of attention before the softmax (torch's flex_attention): functions that a build
// writes for it, and lists of the blocks of keys that blocks of queries look at.
#pragma once

#include <atomic>

#include "types.h"

namespace aotpack::kernels {

inline constexpr int kOperandRank = 8;

// A tensor that the functions read. Dims of one element have stride 0: they broadcast.
struct ScoreOperand {
  const void* data;
  int64_t sizes[kOperandRank], strides[kOperandRank];
};

// The row of scores that a function works on.
struct ScoreRow {
  int64_t at[3];  // batch, head, query
  const ScoreOperand* operands;
  const int64_t* numbers;
};

// Change `count` scores of the row, those of the keys from `first` on. A is float, or double for tensors of double.
// False: an index was out of range.
template <class A>
using ScoreFunction = bool (*)(const ScoreRow& row, int64_t first, int64_t count, A* scores);
using AnyScoreFunction = void (*)();

// For each batch, head and block of queries, the blocks of keys that it looks at: the first counts[...] elements of
// indices[...]. Sizes of 1 of batch and head broadcast, by strides of 0.
struct BlockList {
  const int32_t* counts;
  const int32_t* indices;
  int64_t counts_strides[3];   // batch, head, block of queries
  int64_t indices_strides[4];  // and place
  int64_t places;              // that indices has for each
};

struct ScoreRules {
  // ScoreFunction<A>, of the dtype of the scores. `score` changes scores; `mask` makes those of keys that take no part
  // -inf. Both may be null.
  AnyScoreFunction score, mask;
  const ScoreOperand* operands;
  const int64_t* numbers;
  // With q_block of 0 every query looks at every key, by `mask`. Otherwise at those of its blocks: in `partial` ones
  // by `mask`, in `full` ones at all.
  int64_t q_block, kv_block;
  BlockList partial, full;    // without counts: none
  std::atomic<bool>* failed;  // becomes true where an index is out of range
};

}  // namespace aotpack::kernels
