// One layer of an LSTM or GRU.
#include "kernels/rnn.h"

#include <array>

#include "declare/rnn.h"
#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

struct Weights {
  Tensor *w_ih, *w_hh, *b_ih, *b_hh;
};

// The biases as a kernel reads them.
struct Biases {
  Owned ih, hh;

  explicit Biases(const Weights& from)
      : ih(from.b_ih == nullptr ? nullptr : contiguous(from.b_ih)),
        hh(from.b_hh == nullptr ? nullptr : contiguous(from.b_hh)) {}
};

void trace_weights(Trace& trace, const std::array<const char*, 4>& names, const Weights& weights,
                   const Biases& biases) {
  trace.in_place(names[0], weights.w_ih);
  trace.in_place(names[1], weights.w_hh);
  trace.tensor(names[2], weights.b_ih, biases.ih.get());
  trace.tensor(names[3], weights.b_hh, biases.hh.get());
}

void* data_or_null(const Owned& tensor) { return tensor.get() == nullptr ? nullptr : tensor->data; }

// What a layer computes, in one direction or both: their results are side by side. c is null for a GRU.
struct Layer {
  Owned x, h0, c0;
  const int64_t directions, hidden;
  Owned y{nullptr}, h_n{nullptr}, c_n{nullptr};
  kernels::DType dtype;

  // States are [batch, hidden], of both directions [2, batch, hidden].
  Layer(Tensor* x_given, Tensor* h_given, Tensor* c_given, int64_t hidden_units, int64_t direction_count)
      : x(with_inner_dense(x_given)),
        h0(contiguous(h_given)),
        c0(c_given == nullptr ? nullptr : contiguous(c_given)),
        directions(direction_count),
        hidden(hidden_units),
        dtype(kernel_dtype(x_given, "recurrent layer")) {
    Call& call = Call::current();
    const int64_t y_sizes[3] = {x->sizes[0], x->sizes[1], directions * hidden};
    const int64_t state_sizes[3] = {directions, x->sizes[1], hidden};
    const int32_t rank = directions == 1 ? 2 : 3;
    const auto state = [&] { return call.empty_contiguous(rank, state_sizes + 3 - rank, x->dtype); };
    y.reset(call.empty_contiguous(3, y_sizes, x->dtype));
    h_n.reset(state());
    if (c_given != nullptr) c_n.reset(state());
  }

  // Without scratch.
  kernels::RnnArgs arguments(const Weights& weights, const Biases& biases, int64_t direction, bool reverse) const {
    const int64_t state = direction * x->sizes[1] * hidden;
    const auto of_state = [&](const Owned& tensor) {
      void* data = data_or_null(tensor);
      return data == nullptr ? nullptr : kernels::advance(data, state, dtype);
    };
    kernels::RnnArgs args{};
    args.dtype = dtype;
    args.gru = c0.get() == nullptr;
    args.steps = x->sizes[0];
    args.batch = x->sizes[1];
    args.input = x->sizes[2];
    args.hidden = hidden;
    args.x = x->data;
    args.x_step = x->strides[0];
    args.x_batch = x->strides[1];
    args.w_ih = weights.w_ih->data;
    args.w_hh = weights.w_hh->data;
    args.b_ih = data_or_null(biases.ih);
    args.b_hh = data_or_null(biases.hh);
    args.h0 = of_state(h0);
    args.c0 = of_state(c0);
    args.reverse = reverse;
    args.y = kernels::advance(y->data, direction * hidden, dtype);
    args.y_step = args.batch * directions * hidden;
    args.y_batch = directions * hidden;
    args.h_n = of_state(h_n);
    args.c_n = of_state(c_n);
    args.num_threads = Call::current().num_threads();
    return args;
  }

  void give(Tensor** y_out, Tensor** h_out, Tensor** c_out) {
    *y_out = y.release();
    *h_out = h_n.release();
    if (c_out != nullptr) *c_out = c_n.release();
  }
};

void one_direction(Tensor* x, const Weights& weights, Tensor* h0, Tensor* c0, int64_t hidden, bool reverse,
                   Tensor** y_out, Tensor** h_out, Tensor** c_out) {
  Layer layer(x, h0, c0, hidden, 1);
  const Biases biases(weights);
  Trace trace(c0 == nullptr ? "gru_layer" : "lstm_layer");
  trace.tensor("x", x, layer.x.get());
  trace_weights(trace, {"w_ih", "w_hh", "b_ih", "b_hh"}, weights, biases);
  trace.tensor("h0", h0, layer.h0.get());
  trace.tensor("c0", c0, layer.c0.get());
  kernels::RnnArgs args = layer.arguments(weights, biases, 0, reverse);
  Scratch scratch(static_cast<int64_t>(kernels::rnn_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::rnn(args);
  layer.give(y_out, h_out, c_out);
}

void both_directions(Tensor* x, const Weights& forward, const Weights& backward, Tensor* h0, Tensor* c0, int64_t hidden,
                     Tensor** y_out, Tensor** h_out, Tensor** c_out) {
  Layer layer(x, h0, c0, hidden, 2);
  const Biases biases(forward), more_biases(backward);
  Trace trace(c0 == nullptr ? "gru_both" : "lstm_both");
  trace.tensor("x", x, layer.x.get());
  trace_weights(trace, {"w_ih", "w_hh", "b_ih", "b_hh"}, forward, biases);
  trace_weights(trace, {"w_ih_reverse", "w_hh_reverse", "b_ih_reverse", "b_hh_reverse"}, backward, more_biases);
  trace.tensor("h0", h0, layer.h0.get());
  trace.tensor("c0", c0, layer.c0.get());
  kernels::RnnArgs one = layer.arguments(forward, biases, 0, false),
                   other = layer.arguments(backward, more_biases, 1, true);
  // Of the same sizes.
  const auto bytes = static_cast<int64_t>(kernels::rnn_scratch_bytes(one));
  Scratch scratch(bytes), more_scratch(bytes);
  one.scratch = scratch.get();
  other.scratch = more_scratch.get();
  kernels::rnn_both(one, other);
  layer.give(y_out, h_out, c_out);
}

}  // namespace

void aoti_torch_cpu_lstm_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                               AotpackTensor* b_hh, AotpackTensor h0, AotpackTensor c0, int64_t hidden, int32_t reverse,
                               AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2) {
  const Weights weights{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  one_direction(x, weights, h0, c0, hidden, reverse != 0, ret0, ret1, ret2);
}

void aoti_torch_cpu_gru_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                              AotpackTensor* b_hh, AotpackTensor h0, int64_t hidden, int32_t reverse,
                              AotpackTensor* ret0, AotpackTensor* ret1) {
  const Weights weights{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  one_direction(x, weights, h0, nullptr, hidden, reverse != 0, ret0, ret1, nullptr);
}

void aoti_torch_cpu_lstm_both(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                              AotpackTensor* b_hh, AotpackTensor w_ih_reverse, AotpackTensor w_hh_reverse,
                              AotpackTensor* b_ih_reverse, AotpackTensor* b_hh_reverse, AotpackTensor h0,
                              AotpackTensor c0, int64_t hidden, AotpackTensor* ret0, AotpackTensor* ret1,
                              AotpackTensor* ret2) {
  const Weights forward{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  const Weights backward{w_ih_reverse, w_hh_reverse, optional(b_ih_reverse), optional(b_hh_reverse)};
  both_directions(x, forward, backward, h0, c0, hidden, ret0, ret1, ret2);
}

void aoti_torch_cpu_gru_both(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih,
                             AotpackTensor* b_hh, AotpackTensor w_ih_reverse, AotpackTensor w_hh_reverse,
                             AotpackTensor* b_ih_reverse, AotpackTensor* b_hh_reverse, AotpackTensor h0, int64_t hidden,
                             AotpackTensor* ret0, AotpackTensor* ret1) {
  const Weights forward{w_ih, w_hh, optional(b_ih), optional(b_hh)};
  const Weights backward{w_ih_reverse, w_hh_reverse, optional(b_ih_reverse), optional(b_hh_reverse)};
  both_directions(x, forward, backward, h0, nullptr, hidden, ret0, ret1, nullptr);
}
