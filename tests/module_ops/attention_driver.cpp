// Attention and its gradients.
#include "declare/attention.h"
#include "driver.h"

namespace {

// q, k, v, mask?; causal, whether there is a scale
const std::map<std::string, Entry> kOperators = {
    {"attention_with_lse",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_attention_with_lse(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3),
                                          static_cast<int32_t>(a.ints[0]), a.ints[1] != 0 ? &a.real : nullptr, &r[0],
                                          &r[1]);
      }}},
    // dy, q, k, v, y, lse, mask?; likewise
    {"attention_backward",
     {3,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
            a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], a.tensors[4], a.tensors[5], 0,
            static_cast<int32_t>(a.ints[0]), a.optional(6), a.ints[1] != 0 ? &a.real : nullptr, &r[0], &r[1], &r[2]);
      }}},
};

}  // namespace
