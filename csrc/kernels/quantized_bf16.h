// Many rows of bf16 by a weight of 4 or 8 bits, by the processor's dot products of pairs of bf16.
//
// bf16 has the weight's numbers exactly, so products are those of the weight before it is scaled; sums over a group are
// float, and scaled then. Where the target has no such instruction, or tiles in its place, the weight is dequantized to
// float (quantized_linear.cpp).
#pragma once

#include "parallel.h"
#include "quantized_linear.h"

namespace aotpack::kernels {

// So many rows and panels are multiplied at a time: what is kept of both lies in the second-level cache.
inline constexpr int64_t kQuantizedBf16Rows = 128, kQuantizedBf16Panels = 8;

// Whether x is bf16 and the processor has the instruction.
bool quantized_takes_bf16(const QuantizedLinearArgs& args);

// Of one thread.
struct QuantizedBf16Buffers {
  bf16 *x, *weights;
  float *sums, *tile;  // sums over the parts of groups, for offsets
};
QuantizedBf16Buffers quantized_bf16_buffers(const QuantizedLinearArgs& args, Scratch& from);

// These rows of y, and these panels of its columns.
void quantized_bf16_block(const QuantizedLinearArgs& args, const QuantizedBf16Buffers& buffers, Range rows,
                          Range panels);

}  // namespace aotpack::kernels
