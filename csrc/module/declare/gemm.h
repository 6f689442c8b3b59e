// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);
void aoti_torch_cpu_addmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat1, AotpackTensor mat2, double beta, double alpha);
void aoti_torch_cpu_bmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);
void aoti_torch_cpu_baddbmm_out(AotpackTensor out, AotpackTensor self, AotpackTensor batch1, AotpackTensor batch2, double beta, double alpha);
void aoti_torch_cpu__int_mm_out(AotpackTensor out, AotpackTensor self, AotpackTensor mat2);
// clang-format on
