// Which rows of a quantized weight share a scale.
#pragma once

#include <algorithm>

#include "parallel.h"
#include "quantized_linear.h"

namespace aotpack::kernels::detail {

inline int64_t groups_of(const QuantizedLinearArgs& g) {
  return g.bounds != nullptr ? g.bounded : ceil_div(g.k, g.group);
}
inline Range rows_of(const QuantizedLinearArgs& g, int64_t group) {
  if (g.bounds != nullptr) return {g.bounds[group], g.bounds[group + 1]};
  return {group * g.group, min64((group + 1) * g.group, g.k)};
}
// The group that has a row.
inline int64_t group_of(const QuantizedLinearArgs& g, int64_t row) {
  if (g.bounds == nullptr) return row / g.group;
  return std::upper_bound(g.bounds, g.bounds + g.bounded, row) - g.bounds - 1;
}

}  // namespace aotpack::kernels::detail
