// The operators over kernels: products, convolutions, attention, recurrent layers, packing.
#include "declare/attention.h"
#include "declare/conv.h"
#include "declare/embedding.h"
#include "declare/embedding_bag.h"
#include "declare/gemm.h"
#include "declare/layout.h"
#include "declare/linear.h"
#include "declare/pack.h"
#include "declare/rnn.h"
#include "driver.h"

namespace {

// Lists of a convolution, after `first` scalars: kernel (of as many dims as asked for), stride, padding, dilation,
// output padding, each `spatial` long.
struct Lists {
  const int64_t* at;
  int64_t spatial;
  const int64_t* operator[](int64_t list) const { return at + list * spatial; }
};

const std::map<std::string, Entry> kOperators = {
    // x, weight, bias?, residual?; out_features, act
    {"packed_linear",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_packed_linear(a.tensors[0], a.tensors[1], a.optional(2), a.optional(3), a.ints[0], a.ints[1],
                                     &r[0]);
      }}},
    {"packed_embedding",
     {1,
      [](Arguments& a, Tensor** r) { aoti_torch_cpu_packed_embedding(a.tensors[0], a.tensors[1], a.ints[0], &r[0]); }}},
    {"pack_linear", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_pack_linear(a.tensors[0], &r[0]); }}},
    {"pack_conv",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_pack_conv(a.tensors[0], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
    {"to_layout",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_to_layout(a.tensors[0], a.ints.data(), static_cast<int64_t>(a.ints.size()), &r[0]);
      }}},
    // x, weight, bias?, residual?; out_channels, transposed, groups, act, then the lists
    {"packed_conv",
     {1,
      [](Arguments& a, Tensor** r) {
        const int64_t d = a.tensors[0]->rank - 2;
        const Lists l{a.ints.data() + 4, d};
        aoti_torch_cpu_packed_conv(a.tensors[0], a.tensors[1], a.optional(2), a.optional(3), a.ints[0], l[0], d, l[1],
                                   d, l[2], d, l[3], d, static_cast<int32_t>(a.ints[1]), l[4], d, a.ints[2], a.ints[3],
                                   &r[0]);
      }}},
    // x, weight, bias?; transposed, groups, then the lists without the kernel
    {"convolution",
     {1,
      [](Arguments& a, Tensor** r) {
        const int64_t d = a.tensors[0]->rank - 2;
        const Lists l{a.ints.data() + 2, d};
        aoti_torch_cpu_convolution(a.tensors[0], a.tensors[1], a.optional(2), l[0], d, l[1], d, l[2], d,
                                   static_cast<int32_t>(a.ints[0]), l[3], d, a.ints[1], &r[0]);
      }}},
    {"attention",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_attention(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3),
                                 static_cast<int32_t>(a.ints[0]), a.real, &r[0]);
      }}},
    // x, w_ih, w_hh, b_ih?, b_hh?, h0, c0; hidden, reverse
    {"lstm_layer",
     {3,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_lstm_layer(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3), a.optional(4), a.tensors[5],
                                  a.tensors[6], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1], &r[2]);
      }}},
    {"gru_layer",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_gru_layer(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3), a.optional(4), a.tensors[5],
                                 a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    // x, w_ih, w_hh, b_ih?, b_hh?, the same weights of the other direction, h0, c0; hidden
    {"lstm_both",
     {3,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_lstm_both(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3), a.optional(4), a.tensors[5],
                                 a.tensors[6], a.optional(7), a.optional(8), a.tensors[9], a.tensors[10], a.ints[0],
                                 &r[0], &r[1], &r[2]);
      }}},
    {"gru_both",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_gru_both(a.tensors[0], a.tensors[1], a.tensors[2], a.optional(3), a.optional(4), a.tensors[5],
                                a.tensors[6], a.optional(7), a.optional(8), a.tensors[9], a.ints[0], &r[0], &r[1]);
      }}},
    {"mm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_mm_out(a.tensors[0], a.tensors[1], a.tensors[2]);
        r[0] = again(a.tensors[0]);
      }}},
    {"addmm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_addmm_out(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], a.real, 0.5);
        r[0] = again(a.tensors[0]);
      }}},
    {"bmm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_bmm_out(a.tensors[0], a.tensors[1], a.tensors[2]);
        r[0] = again(a.tensors[0]);
      }}},
    {"baddbmm",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_baddbmm_out(a.tensors[0], a.tensors[1], a.tensors[2], a.tensors[3], a.real, 0.5);
        r[0] = again(a.tensors[0]);
      }}},
    // weight, indices, offsets, per_sample_weights?; mode, include_last_offset, padding_idx
    {"embedding_bag",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_embedding_bag(a.tensors[0], a.tensors[1], a.tensors[2], a.ints[0], a.optional(3),
                                     static_cast<int32_t>(a.ints[1]), a.ints[2], &r[0]);
      }}},
};

}  // namespace
