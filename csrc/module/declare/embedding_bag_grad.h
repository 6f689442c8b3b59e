// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Embedding bags with all that their backward reads. mode 0 sum, 1 mean, 2 max; padding_idx -1 for none. Results: the
// bags [bags, dim]; of indices' number the bag of each; the indices in each bag but padding; in mode max the row that
// each element came from [bags, dim], else [0]. The last three have the dtype of `offsets`.
void aoti_torch_cpu_embedding_bag_full(AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, int64_t mode, AotpackTensor* per_sample_weights, int32_t include_last_offset, int64_t padding_idx, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2, AotpackTensor* ret3);
void aoti_torch_cpu__embedding_bag_dense_backward(AotpackTensor grad, AotpackTensor indices, AotpackTensor offset2bag, AotpackTensor bag_size, AotpackTensor maximum_indices, int64_t num_weights, int32_t scale_grad_by_freq, int64_t mode, AotpackTensor* per_sample_weights, int64_t padding_idx, AotpackTensor* ret0);
void aoti_torch_cpu__embedding_bag_per_sample_weights_backward(AotpackTensor grad, AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, AotpackTensor offset2bag, int64_t mode, int64_t padding_idx, AotpackTensor* ret0);
// clang-format on
