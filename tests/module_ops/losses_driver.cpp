// The CTC loss and other losses over data of varying length.
#include "declare/ctc.h"
#include "declare/segment.h"
#include "driver.h"

namespace {

const std::map<std::string, Entry> kOperators = {
    // log_probs, targets, input_lengths, target_lengths; blank
    {"ctc_loss",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_ctc_loss(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], a.ints[0], 0, &r[0], &r[1]);
      }}},
    // grad, then as above, nll, log_alpha; blank, zero_infinity
    {"ctc_loss_backward",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_ctc_loss_backward(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], a.tensors[4],
                                         a.tensors[5], a.tensors[6], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
    // data, lengths?, offsets?; axis, unsafe, whether `real` is the initial value; reduction
    {"segment_reduce",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_segment_reduce(a.tensors[0], a.text, a.optional(1), nullptr, a.optional(2), a.ints[0],
                                      static_cast<int32_t>(a.ints[1]), a.ints[2] != 0 ? &a.real : nullptr, &r[0]);
      }}},
    // grad, output, then as above
    {"segment_reduce_backward",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu__segment_reduce_backward(a.tensors[0], a.tensors[1], a.tensors[2], a.text, a.optional(3),
                                                a.optional(4), a.ints[0], a.ints[2] != 0 ? &a.real : nullptr, &r[0]);
      }}},
};

}  // namespace
