// Interleaves channels of several tensors: the channel shuffle of networks with grouped or split convolutions.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// `parts` tensors of `pixels` x c elements: channels side by side, pixels of part j x_strides[j] elements apart. y is
// dense: y[p][i * parts + j] = x[j][p][i]. elem_size is 1, 2, 4, 8 or 16 bytes. y must not overlap a part.
struct InterleaveArgs {
  int64_t pixels, c, parts;
  const void* const* x;      // [parts]
  const int64_t* x_strides;  // [parts], in elements
  void* y;
  int64_t elem_size;
  int num_threads;
};

void interleave(const InterleaveArgs& args);

}  // namespace aotpack::kernels
