// See ../operators.h. Draws that depend on nothing but their arguments: `seed` is one int64.
#pragma once

#include "operators.h"

// clang-format off
// Integers in [low, last], all equally likely; int64 [*size].
void aoti_torch_cpu_random_integers(int64_t low, int64_t last, const int64_t* size, int64_t size_len, AotpackTensor seed, AotpackTensor* ret0);
// A permutation of [0, n), all equally likely.
void aoti_torch_cpu_random_permutation(int64_t n, AotpackTensor seed, int32_t dtype, AotpackTensor* ret0);
// rate, of the result's dtype and sizes.
void aoti_torch_cpu_random_poisson(AotpackTensor rate, AotpackTensor seed, AotpackTensor* ret0);
// count and prob, of the same sizes; the result has count's dtype.
void aoti_torch_cpu_random_binomial(AotpackTensor count, AotpackTensor prob, AotpackTensor seed, AotpackTensor* ret0);
void aoti_torch_cpu_random_gamma(AotpackTensor alpha, AotpackTensor seed, AotpackTensor* ret0);
// alpha [..., K]; rows of the result sum to 1.
void aoti_torch_cpu_random_dirichlet(AotpackTensor alpha, AotpackTensor seed, AotpackTensor* ret0);
// weights [K] or [rows, K]; int64 [samples] or [rows, samples].
void aoti_torch_cpu_random_multinomial(AotpackTensor weights, int64_t samples, int32_t replacement, AotpackTensor seed, AotpackTensor* ret0);
// clang-format on
