// Embedding bags for training.
#include "declare/embedding_bag_grad.h"
#include "driver.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    // weight, indices, offsets, per_sample_weights?; mode, include_last_offset, padding_idx
    {"full",
     {4,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_embedding_bag_full(a.tensors[0], a.tensors[1], a.tensors[2], a.ints[0], a.optional(3),
                                          static_cast<int32_t>(a.ints[1]), a.ints[2], &r[0], &r[1], &r[2], &r[3]);
      }}},
    // grad, indices, offset2bag, bag_size, maximum_indices, per_sample_weights?; rows, by frequency, mode, padding_idx
    {"dense_backward",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu__embedding_bag_dense_backward(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3],
                                                     a.tensors[4], a.ints[0], static_cast<int32_t>(a.ints[1]),
                                                     a.ints[2], a.optional(5), a.ints[3], &r[0]);
      }}},
    // grad, weight, indices, offsets, offset2bag; padding_idx
    {"per_sample_weights_backward",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu__embedding_bag_per_sample_weights_backward(a.tensors[0], a.tensors[1], a.tensors[2],
                                                                  a.tensors[3], a.tensors[4], 0, a.ints[0], &r[0]);
      }}},
};

}  // namespace
