// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Connectionist temporal classification (Graves et al., 2006). log_probs [T, B, C]; targets [B, S], or [S] with those of
// the batch behind each other; lengths [B]. ret0 [B]: negative log likelihoods; ret1 [B, T, 2 S + 1]: log alpha.
void aoti_torch_cpu_ctc_loss(AotpackTensor log_probs, AotpackTensor targets, AotpackTensor input_lengths, AotpackTensor target_lengths, int64_t blank, int32_t zero_infinity, AotpackTensor* ret0, AotpackTensor* ret1);
// `zero_infinity` matters to the gradient alone.
// The gradient of log_probs; nll and log_alpha are the results of ctc_loss.
void aoti_torch_cpu_ctc_loss_backward(AotpackTensor grad, AotpackTensor log_probs, AotpackTensor targets, AotpackTensor input_lengths, AotpackTensor target_lengths, AotpackTensor nll, AotpackTensor log_alpha, int64_t blank, int32_t zero_infinity, AotpackTensor* ret0);
// clang-format on
