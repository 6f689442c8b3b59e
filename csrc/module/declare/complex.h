// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Views of the same memory: [..., 2] real numbers, and back.
void aoti_torch_cpu_view_as_real(AotpackTensor self, AotpackTensor* ret0);
void aoti_torch_cpu_view_as_complex(AotpackTensor self, AotpackTensor* ret0);
// The same memory with the dims in this order; of any dtype.
void aoti_torch_cpu_permute(AotpackTensor self, const int64_t* dims, int64_t dims_len, AotpackTensor* ret0);
// Writes `source`, broadcast and converted, into `out`. Generated code gives a null pointer for the result that there
// is none of.
void aoti_torch_cpu_complex_store(AotpackTensor out, AotpackTensor source, void* none = nullptr);
// Running products along `dim`, contiguous.
void aoti_torch_cpu_complex_cumprod(AotpackTensor self, int64_t dim, AotpackTensor* ret0);
// log(cumsum(exp(self))) along `dim`, computed in double; contiguous.
void aoti_torch_cpu_complex_logcumsumexp(AotpackTensor self, int64_t dim, AotpackTensor* ret0);
// clang-format on
