// The product with the state in rnn() for bf16, by the processor's instructions for it (bf16_product.h).
#pragma once

#include "bf16_product.h"
#include "parallel.h"
#include "rnn.h"

namespace aotpack::kernels {

// Whether the target has them, they work on this processor, and there are rows enough for pairing the weights.
bool rnn_takes_bf16(const RnnArgs& args);

// What `hidden` is padded to in paired weights and in rows of the state, with zeros.
int64_t rnn_bf16_depth(int64_t hidden);

// Pairs up panels of w_hh: [panel][rnn_bf16_depth][32].
void rnn_bf16_pair(const RnnArgs& args, Range panels, bf16* paired);

// gates[r * gates_stride + j] = bias[j] + the sum of h[r * h_stride + i] times column j of one panel, r < batch, j
// < 32.
void rnn_bf16_multiply(Bf16Unit* unit, const RnnArgs& args, const bf16* h, int64_t h_stride, const bf16* paired,
                       const float* bias, float* gates, int64_t gates_stride);

}  // namespace aotpack::kernels
