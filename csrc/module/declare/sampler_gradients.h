// See ../operators.h. How a draw moves with the parameters of its distribution.
#pragma once

#include "operators.h"

// clang-format off
// d sample / d alpha of samples of Gamma(alpha, 1); both of the same sizes and dtype, as is the result, row-major.
void aoti_torch_cpu_standard_gamma_grad(AotpackTensor alpha, AotpackTensor sample, AotpackTensor* ret0);
// For samples x of Dirichlet(alpha), total = the sum of alpha: -(d/dalpha cdf(x)) / pdf(x) / (1 - x) of the marginal
// Beta(alpha, total - alpha). All three of the same sizes and dtype, as is the result, row-major.
void aoti_torch_cpu_dirichlet_grad(AotpackTensor x, AotpackTensor alpha, AotpackTensor total, AotpackTensor* ret0);
// clang-format on
