// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_sort(AotpackTensor self, int64_t dim, int32_t descending, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_sort_stable(AotpackTensor self, int32_t* stable, int64_t dim, int32_t descending, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_topk(AotpackTensor self, int64_t k, int64_t dim, int32_t largest, int32_t sorted, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_kthvalue(AotpackTensor self, int64_t k, int64_t dim, int32_t keepdim, AotpackTensor* ret0, AotpackTensor* ret1);
void aoti_torch_cpu_searchsorted_Tensor(AotpackTensor sorted_sequence, AotpackTensor self, int32_t out_int32, int32_t right, const char** side, AotpackTensor* sorter, AotpackTensor* ret0);
void aoti_torch_cpu_searchsorted_Scalar(AotpackTensor sorted_sequence, double self, int32_t out_int32, int32_t right, const char** side, AotpackTensor* sorter, AotpackTensor* ret0);
void aoti_torch_cpu_bucketize_Tensor(AotpackTensor self, AotpackTensor boundaries, int32_t out_int32, int32_t right, AotpackTensor* ret0);
// clang-format on
