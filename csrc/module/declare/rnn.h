// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// One layer, one direction. x [steps, batch, input]; h0, c0 [batch, hidden]; weights packed as linear's. y, h_n, c_n.
void aoti_torch_cpu_lstm_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor h0, AotpackTensor c0, int64_t hidden, int32_t reverse, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2);
void aoti_torch_cpu_gru_layer(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor h0, int64_t hidden, int32_t reverse, AotpackTensor* ret0, AotpackTensor* ret1);
// Both directions. h0, c0, h_n, c_n [2, batch, hidden]; y [steps, batch, 2 * hidden].
void aoti_torch_cpu_lstm_both(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor w_ih_reverse, AotpackTensor w_hh_reverse, AotpackTensor* b_ih_reverse, AotpackTensor* b_hh_reverse, AotpackTensor h0, AotpackTensor c0, int64_t hidden, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2);
void aoti_torch_cpu_gru_both(AotpackTensor x, AotpackTensor w_ih, AotpackTensor w_hh, AotpackTensor* b_ih, AotpackTensor* b_hh, AotpackTensor w_ih_reverse, AotpackTensor w_hh_reverse, AotpackTensor* b_ih_reverse, AotpackTensor* b_hh_reverse, AotpackTensor h0, int64_t hidden, AotpackTensor* ret0, AotpackTensor* ret1);
// clang-format on
