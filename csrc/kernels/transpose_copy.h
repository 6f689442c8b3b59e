// Brings a strided tensor into dense row-major order; among others NCHW into NHWC and back.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// dst, dense in row-major order of `sizes`, takes src[i0, i1, ..], where src_strides count elements (0 and negative
// ones are fine). elem_size is 1, 2, 4, 8 or 16 bytes; rank in [0, 16]. The two must not overlap.
void transpose_copy(void* dst, const void* src, int64_t rank, const int64_t* sizes, const int64_t* src_strides,
                    int64_t elem_size, int num_threads);

}  // namespace aotpack::kernels
