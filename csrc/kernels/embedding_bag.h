// Sums, means or maxima of rows of a table, bag by bag.
#pragma once

#include "types.h"

namespace aotpack::kernels {

enum class BagMode : int32_t { sum = 0, mean = 1, max = 2 };  // torch's numbers

enum class BagStatus : int32_t {
  ok = 0,
  index_out_of_range = 1,  // an index is negative or at least `rows`
  bad_offsets = 2          // offsets do not begin with 0, fall, or go beyond num_indices
};

// Bag i takes indices [offsets[i], offsets[i + 1]), the last one up to num_indices; with include_last_offset the last
// offset only ends the last bag. Without offsets every bag has bag_length indices. A bag without indices gives 0.
struct EmbeddingBagArgs {
  DType dtype;  // of weight, per_sample_weights and y; sums are float
  BagMode mode;
  const void* weight;  // [rows, dim], inner stride 1
  int64_t rows, dim, weight_stride;
  bool wide_indices;    // indices and offsets are int64, otherwise int32
  const void* indices;  // [num_indices]
  int64_t num_indices;
  const void* offsets;  // [num_offsets] or null
  int64_t num_offsets;
  bool include_last_offset;
  int64_t bag_length;
  const void* per_sample_weights;  // [num_indices] or null; in mode sum
  int64_t padding_idx;             // indices equal to it do not count, not even for the mean; negative: none
  void* y;                         // [bags, dim], inner stride 1
  int64_t y_stride;
  int num_threads;
};

int64_t embedding_bag_count(const EmbeddingBagArgs& args);
// On anything but ok, y holds nothing of use; no memory outside of the operands was touched.
BagStatus embedding_bag(const EmbeddingBagArgs& args);

}  // namespace aotpack::kernels
