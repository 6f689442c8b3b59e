// Matrix products of int8, or of uint8 by int8, into int32.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// y = a @ b with a [m, k], b [k, n] and y [m, n], each with any strides in elements. Sums wrap around.
struct Int8GemmArgs {
  int64_t m, n, k;
  const int8_t* a;
  int64_t a_row, a_col;
  const int8_t* b;
  int64_t b_row, b_col;
  int32_t* y;
  int64_t y_row, y_col;
  int num_threads;
  void* scratch;            // gemm_int8_scratch_bytes of it, any alignment
  bool a_unsigned = false;  // a is uint8_t
};

size_t gemm_int8_scratch_bytes(const Int8GemmArgs& args);
void gemm_int8(const Int8GemmArgs& args);

}  // namespace aotpack::kernels
