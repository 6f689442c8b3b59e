// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_index_Tensor(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len, AotpackTensor* ret0);
void aoti_torch_cpu_index_put(AotpackTensor self, const AotpackTensor** indices, int64_t indices_len, AotpackTensor values, int32_t accumulate, AotpackTensor* ret0);
void aoti_torch_index_put_out(AotpackTensor out, AotpackTensor self, const AotpackTensor* indices, int64_t indices_len, AotpackTensor values, int32_t accumulate);
// clang-format on
