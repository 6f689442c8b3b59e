// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Reduces runs of `axis`, given by their lengths [..., segments] or by offsets [..., segments + 1], where `...` are the dims before `axis`.
void aoti_torch_cpu_segment_reduce(AotpackTensor data, const char* reduce, AotpackTensor* lengths, AotpackTensor* indices, AotpackTensor* offsets, int64_t axis, int32_t unsafe, double* initial, AotpackTensor* ret0);
void aoti_torch_cpu__segment_reduce_backward(AotpackTensor grad, AotpackTensor output, AotpackTensor data, const char* reduce, AotpackTensor* lengths, AotpackTensor* offsets, int64_t axis, double* initial, AotpackTensor* ret0);
// clang-format on
