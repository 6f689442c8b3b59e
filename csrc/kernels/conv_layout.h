// Which layout the packed weights of a convolution have. The same rule is in aotpack/export/ops/weight_packing.py.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// With cg inputs and og outputs per group:
enum class ConvLayout {
  panels,     // packed[groups][ceil(og / 32)][taps][cg][32], the outputs of each group padded with zeros
  grouped,    // packed[ceil(oc / 32)][taps][cg][32], a panel going on over the border of a group
  depthwise,  // packed[taps][c]
};

// Panels of their own would be mostly padding for groups of less than a panel. A transposed convolution keeps them: its
// taps differ from one output pixel to the next.
inline constexpr ConvLayout conv_layout(int64_t groups, int64_t cg, int64_t og, bool transposed) {
  if (transposed) return ConvLayout::panels;
  if (cg == 1 && og == 1) return ConvLayout::depthwise;
  return groups > 1 && og > 0 && og < kPanel ? ConvLayout::grouped : ConvLayout::panels;
}

}  // namespace aotpack::kernels
