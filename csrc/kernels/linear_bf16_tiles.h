// linear() for bf16 by AMX's tiles.
#pragma once

#include "ahead.h"
#include "linear.h"
#include "parallel.h"
#include "tile_rows.h"

namespace aotpack::kernels {

// Rows of x that overlap, as a convolution's windows do. A row is k / run runs, `offsets` elements from its begin; a
// run is whole steps, and `together` of them are multiplied before others. `rows` says where they lie in x, in
// elements, and which of them have a row of y and of the residual.
struct Bf16Windows {
  int64_t run, together;
  const int64_t* offsets;
  TileRows rows;
};
constexpr int64_t kMostWindowRun = 1536;  // times `together`: the weights of two panels are paired at once

// linear_bf16_part (linear_bf16.h) for targets with AMX, whatever the number of rows.
// `next` is read after these weights, as far as this thread goes.
void linear_bf16_tiles(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded,
                       const Weights& next = {}, const Bf16Windows* windows = nullptr);

}  // namespace aotpack::kernels
