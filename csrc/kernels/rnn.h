// One layer of an LSTM or GRU, as in torch.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// gates is 4 for an LSTM (i, f, g, o) and 3 for a GRU (r, z, n). The weights are packed as for linear(): w_ih is
// [input, gates * hidden], w_hh [hidden, gates * hidden]. The state is float between steps.
struct RnnArgs {
  DType dtype;  // of everything below
  bool gru;
  int64_t steps, batch, input, hidden;
  const void* x;  // [steps, batch, input], inner stride 1
  int64_t x_step, x_batch;
  const void* w_ih;
  const void* w_hh;
  const void* b_ih;  // [gates * hidden] or null
  const void* b_hh;  // [gates * hidden] or null
  const void* h0;    // [batch, hidden] dense, null: 0
  const void* c0;    // the same; LSTM only
  bool reverse;      // from the last step to the first; y stays in the order of x
  void* y;           // [steps, batch, hidden], inner stride 1; must not overlap the inputs
  int64_t y_step, y_batch;
  void* h_n;  // [batch, hidden] dense or null: the state after the last step taken
  void* c_n;  // the same; LSTM only
  int num_threads;
  void* scratch;  // rnn_scratch_bytes of it, any alignment
};

// Depends on the sizes, the dtype and num_threads; the pointers are not looked at.
size_t rnn_scratch_bytes(const RnnArgs& args);
void rnn(const RnnArgs& args);
// Two directions of a layer, at the same time where that is faster. They have the same sizes and num_threads, and
// scratch of their own.
void rnn_both(const RnnArgs& one, const RnnArgs& other);

}  // namespace aotpack::kernels
