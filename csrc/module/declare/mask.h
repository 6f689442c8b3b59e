// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_nonzero(AotpackTensor self, AotpackTensor* ret0);
void aoti_torch_cpu_nonzero_static(AotpackTensor self, int64_t size, int64_t fill_value, AotpackTensor* ret0);
void aoti_torch_cpu_masked_select(AotpackTensor self, AotpackTensor mask, AotpackTensor* ret0);
void aoti_torch_cpu_masked_scatter(AotpackTensor self, AotpackTensor mask, AotpackTensor source, AotpackTensor* ret0);
void aoti_torch_cpu_repeat_interleave_Tensor(AotpackTensor repeats, int64_t* output_size, AotpackTensor* ret0);
// clang-format on
