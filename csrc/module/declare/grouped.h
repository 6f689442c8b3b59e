// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// Rows of x [rows, k] by the matrix of their group, w [groups, k, n]: group g has the rows from ends[g - 1] (0) to ends[g]; what is left over is 0.
void aoti_torch_cpu_grouped_mm(AotpackTensor x, AotpackTensor w, AotpackTensor ends, AotpackTensor* ret0);
// For each group a[:, its places] @ b[its places], of a [m, k] and b [k, n]: [groups, m, n].
void aoti_torch_cpu_grouped_outer(AotpackTensor a, AotpackTensor b, AotpackTensor ends, AotpackTensor* ret0);
// clang-format on
