// Transposed convolutions as several plain ones.
#pragma once

#include "conv.h"

namespace aotpack::kernels {

// Along one dim, the output positions first + j * step for j < count; kernel index kernel0 + t * kernel_step for t <
// taps reads input j * stride + offset0 + t * offset_step. A plain convolution is one such phase; a transposed one has
// `stride` of them, each with the taps that hit an input at all.
struct Phase {
  int64_t first, step, count;
  int64_t taps, kernel0, kernel_step;
  int64_t stride, offset0, offset_step;
};

inline int64_t phases(const ConvArgs& g, int d) { return g.transposed ? g.stride[d] : 1; }

inline Phase phase_of(const ConvArgs& g, int d, int64_t index) {
  if (!g.transposed) {
    return {0, 1, g.out[d], g.kernel[d], 0, 1, g.stride[d], -g.padding[d], g.dilation[d]};
  }
  const int64_t s = g.stride[d];
  Phase p = {index, s, index < g.out[d] ? ceil_div(g.out[d] - index, s) : 0, 0, 0, 1, 1, 0, 0};
  // Taps with (index + padding - k * dilation) divisible by s recur with period s / gcd(s, dilation).
  int64_t first = -1, second = -1;
  for (int64_t k = 0; k < g.kernel[d]; ++k) {
    if ((index + g.padding[d] - k * g.dilation[d]) % s != 0) continue;
    if (first < 0) {
      first = k;
    } else if (second < 0) {
      second = k;
    }
    ++p.taps;
  }
  if (p.taps > 0) {
    p.kernel0 = first;
    p.kernel_step = p.taps > 1 ? second - first : 1;
    p.offset0 = (index + g.padding[d] - first * g.dilation[d]) / s;
    p.offset_step = -(p.kernel_step * g.dilation[d]) / s;
  }
  return p;
}

}  // namespace aotpack::kernels
