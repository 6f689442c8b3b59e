// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Transforms along `dim`; the result is dense with its dims in `order`, from outermost to innermost. `normalization`
// is torch's: 0 none, 1 by the square root of the number of points, 2 by the number of points.
void aoti_torch_cpu_fft_c2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t forward, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
void aoti_torch_cpu_fft_r2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t onesided, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
void aoti_torch_cpu_fft_c2r(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int64_t last_dim_size, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
// clang-format on
