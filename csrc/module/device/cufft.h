// Operators of module/declare/fft.h by cuFFT. Each returns whether it has; otherwise the host computes.
#pragma once

#include "operators.h"
#include "tensor.h"

// clang-format off
namespace aotpack::module::cufft {

bool fft_c2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t forward, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
bool fft_r2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t onesided, const int64_t* order, int64_t order_len, AotpackTensor* ret0);
bool fft_c2r(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int64_t last_dim_size, const int64_t* order, int64_t order_len, AotpackTensor* ret0);

}  // namespace aotpack::module::cufft
// clang-format on
