// The transforms of S. Winograd's minimal filtering for kernels of three taps (A. Lavin, S. Gray, "Fast Algorithms for
// Convolutional Neural Networks"), along one dim and in place: B^T of a tile's inputs, A^T of its products. G, of the
// weights, is applied when an archive is built (aotpack/export/ops/weight_packing.py).
//
// Each comes from the points at which polynomials are multiplied. They decide how much is rounded, as sums grow by the
// powers of the points and shrink again.
#pragma once

#include "simd.h"

namespace aotpack::kernels {

// F(2, 3), of the points 0, 1, -1 and infinity.
struct TilesOfTwo {
  static constexpr int kOutputs = 2, kInputs = 4;

  static AOTPACK_INLINE void inputs(vf d[4]) {
    const vf first = d[0] - d[2], plus = d[1] + d[2], minus = d[2] - d[1], last = d[1] - d[3];
    d[0] = first, d[1] = plus, d[2] = minus, d[3] = last;
  }
  static AOTPACK_INLINE void outputs(const vf m[4], vf y[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
};

// F(4, 3), of the points 0, a, -a, b, -b and infinity. Of pairs that floats hold exactly, with their squares, these
// round least: outputs of random numbers differ from the exact ones by 1.8 times as much as those of a plain sum (root
// of the mean of squares, 48 to 512 channels). With 1 and 2, which Lavin and Gray have, it is 4 times, with 0, 1, -1,
// 1/2 and -2 (B. Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
// Networks") 2.5 times.
struct TilesOfFour {
  static constexpr int kOutputs = 4, kInputs = 6;
  static constexpr float a = 11.0f / 16, b = 3.0f / 2, aa = a * a, bb = b * b;

  // The polynomial of all points but one, for each: what a pair shares is computed once.
  static AOTPACK_INLINE void inputs(vf d[6]) {
    const vf first = d[4] - (aa + bb) * d[2] + (aa * bb) * d[0], last = d[5] - (aa + bb) * d[3] + (aa * bb) * d[1];
    const vf even_a = d[4] - bb * d[2], odd_a = d[3] - bb * d[1];
    const vf even_b = d[4] - aa * d[2], odd_b = d[3] - aa * d[1];
    d[0] = first, d[5] = last;
    d[1] = even_a + a * odd_a, d[2] = even_a - a * odd_a;
    d[3] = even_b + b * odd_b, d[4] = even_b - b * odd_b;
  }
  static AOTPACK_INLINE void outputs(const vf m[6], vf y[4]) {
    const vf even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    y[0] = m[0] + even_a + even_b;
    y[1] = a * odd_a + b * odd_b;
    y[2] = aa * even_a + bb * even_b;
    y[3] = (aa * a) * odd_a + (bb * b) * odd_b + m[5];
  }
};

}  // namespace aotpack::kernels
