// See ../operators.h. Orthogonal factors.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_geqrf(AotpackTensor self, AotpackTensor* ret0, AotpackTensor* ret1);
// mode: "reduced", "complete" or "r".
void aoti_torch_cpu_linalg_qr(AotpackTensor A, const char* mode, AotpackTensor* Q, AotpackTensor* R);
void aoti_torch_cpu_linalg_householder_product(AotpackTensor input, AotpackTensor tau, AotpackTensor* ret0);
void aoti_torch_cpu_ormqr(AotpackTensor self, AotpackTensor input2, AotpackTensor input3, int32_t left, int32_t transpose, AotpackTensor* ret0);
// clang-format on
