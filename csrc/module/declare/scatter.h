// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_scatter_src_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor src);
void aoti_torch_cpu_scatter_value_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, double value);
void aoti_torch_cpu_scatter_reduce_two_out(AotpackTensor out, AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor src, const char* reduce, int32_t include_self);
void aoti_torch_cpu_index_reduce(AotpackTensor self, int64_t dim, AotpackTensor index, AotpackTensor source, const char* reduce, int32_t include_self, AotpackTensor* ret0);
// clang-format on
