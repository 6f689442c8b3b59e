// One layer of an LSTM or GRU in one direction.
#include "kernels/rnn.h"

#include "declare/rnn.h"
#include "ops/common.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

struct Weights {
  Tensor *w_ih, *w_hh, *b_ih, *b_hh;
};

// h0 and c0 are [batch, hidden]; c0, c_out are null for a GRU.
void layer(Tensor* x, const Weights& weights, Tensor* h0, Tensor* c0, int64_t hidden, bool reverse, Tensor** y_out,
           Tensor** h_out, Tensor** c_out) {
  Call& call = Call::current();
  kernels::RnnArgs args{};
  args.dtype = kernel_dtype(x, "recurrent layer");
  args.gru = c0 == nullptr;
  Owned source(with_inner_dense(x)), h(contiguous(h0)), c(c0 == nullptr ? nullptr : contiguous(c0));
  args.steps = x->sizes[0];
  args.batch = x->sizes[1];
  args.input = x->sizes[2];
  args.hidden = hidden;
  args.x = source->data;
  args.x_step = source->strides[0];
  args.x_batch = source->strides[1];
  args.w_ih = weights.w_ih->data;
  args.w_hh = weights.w_hh->data;
  Owned b_ih(weights.b_ih == nullptr ? nullptr : contiguous(weights.b_ih));
  Owned b_hh(weights.b_hh == nullptr ? nullptr : contiguous(weights.b_hh));
  args.b_ih = b_ih.get() == nullptr ? nullptr : b_ih->data;
  args.b_hh = b_hh.get() == nullptr ? nullptr : b_hh->data;
  Trace trace(args.gru ? "gru_layer" : "lstm_layer");
  trace.tensor("x", x, source.get());
  trace.in_place("w_ih", weights.w_ih);
  trace.in_place("w_hh", weights.w_hh);
  trace.tensor("b_ih", weights.b_ih, b_ih.get());
  trace.tensor("b_hh", weights.b_hh, b_hh.get());
  trace.tensor("h0", h0, h.get());
  trace.tensor("c0", c0, c.get());
  args.h0 = h->data;
  args.c0 = c.get() == nullptr ? nullptr : c->data;
  args.reverse = reverse;
  const int64_t y_sizes[3] = {args.steps, args.batch, hidden};
  const int64_t* state_sizes = y_sizes + 1;
  Owned y(call.empty_contiguous(3, y_sizes, x->dtype));
  Owned h_n(call.empty_contiguous(2, state_sizes, x->dtype));
  Owned c_n(c_out == nullptr ? nullptr : call.empty_contiguous(2, state_sizes, x->dtype));
  args.y = y->data;
  args.y_step = args.batch * hidden;
  args.y_batch = hidden;
  args.h_n = h_n->data;
  args.c_n = c_n.get() == nullptr ? nullptr : c_n->data;
  args.num_threads = call.num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::rnn_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::rnn(args);
  *y_out = y.release();
  *h_out = h_n.release();
  if (c_out != nullptr) *c_out = c_n.release();
}

}  // namespace

void aoti_torch_cpu_lstm_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                               AotpackTensor* b_hh, AotpackTensor h0, AotpackTensor c0, int64_t hidden, int32_t reverse,
                               AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2) {
  const Weights weights{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  layer(x, weights, h0, c0, hidden, reverse != 0, ret0, ret1, ret2);
}

void aoti_torch_cpu_gru_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                              AotpackTensor* b_hh, AotpackTensor h0, int64_t hidden, int32_t reverse,
                              AotpackTensor* ret0, AotpackTensor* ret1) {
  const Weights weights{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  layer(x, weights, h0, nullptr, hidden, reverse != 0, ret0, ret1, nullptr);
}
