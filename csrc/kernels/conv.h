// 1-d, 2-d and 3-d convolution, dense, grouped, depthwise and transposed, on channels-last data with weights
// packed at build time.
#pragma once

#include "conv_layout.h"
#include "knobs.h"
#include "transpose_copy.h"
#include "types.h"

namespace aotpack::kernels {

// Winograd's algorithm computes tiles of 2 x 2 or of 4 x 4 outputs.
enum class Winograd : uint8_t { none = 0, two = 1, four = 2 };
inline constexpr int64_t winograd_elements(Winograd w) {
  return w == Winograd::two ? 16 : w == Winograd::four ? 36 : 0;
}

// x is [n, in.., c] and y [n, out.., oc], dense but for x_pixel; the three spatial dims are depth, height, width, and
// those that are missing have in = out = kernel = stride = dilation = 1 and padding 0. With cg = c / groups, og = oc /
// groups and taps numbered (depth, height, width) row-major, weights are packed as conv_layout says:
//   packed[taps][c]                      depthwise: cg == og == 1, not transposed;
//   packed[ceil(oc / 32)][taps][cg][32]  grouped: otherwise, groups > 1 and og < 32, not transposed;
//   packed[groups][ceil(og / 32)][taps][cg][32]  panels: otherwise;
//   packed[ceil(oc / 32)][16 or 36][c][32]       winograd, if asked for: panels of G w G^T instead of w, row-major;
//     see takes_winograd. For tiles of two, G = {{1, 0, 0}, {1/2, 1/2, 1/2}, {1/2, -1/2, 1/2}, {0, 0, 1}}. For tiles
//     of four, with a = 11/16, b = 3/2 and d = a^2 - b^2, the rows of G are {1, 0, 0} / (a b)^2,
//     {1, +-a, a^2} / (2 a^2 d), {1, +-b, b^2} / (-2 b^2 d) and {0, 0, 1}.
// Element (p, t, i, j) of a grouped layout is tap t of output channel 32 p + j for input i of that channel's group.
// Elements beyond oc, or og in panels, are zero.
// Transposed is torch's conv_transpose: y[o] sums x[i] w[k] over o = i * stride - padding + k * dilation; the output
// padding shows in `out` alone. Otherwise i = o * stride - padding + k * dilation. x outside of `in` counts as zero.
struct ConvArgs {
  DType dtype;  // of x, weights, bias, residual and y; sums are float
  int64_t n, c, oc, groups;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  bool transposed;
  Winograd winograd;  // how w_packed is transformed
  bool planar;        // x is [n, c, in..] instead, which takes_planar
  const void* x;
  const void* w_packed;
  const void* bias;      // [oc] or null
  const void* residual;  // dense like y, or null; added after the bias, before the activation; may be y
  Act act;
  void* y;  // must not overlap x
  int num_threads;
  void* scratch;  // conv_scratch_bytes of it, any alignment
  Knobs knobs = {};
  // Elements from one pixel of x to the next, also over the end of a row and of an image; 0 if c. More where x is some
  // of the channels of a tensor: only what takes_strided takes.
  int64_t x_pixel = 0;
};

inline int64_t pixel_step(const ConvArgs& args) { return args.x_pixel == 0 ? args.c : args.x_pixel; }
// Whether x_pixel may be more than c: where x is not copied before it is used. The same rule is in
// aotpack/export/passes/cpu/layouts/operators.py.
bool takes_strided(const ConvArgs& args);

// Whether the arguments may have a transformed weight: 3 x 3 in two dims, f32, one group, stride 1, not dilated.
// Tiles of two round about as much, tiles of four 1.8 times as much. An infinity or NaN of x can come out as NaN in any
// of the outputs that are computed together with one that reads it.
bool takes_winograd(const ConvArgs& args);

// Whether x may be planar: where it has few channels and is copied in any case, or is worth it (as in the first layer
// of a network for images). The same rule is in aotpack/export/passes/cpu/layouts/operators.py.
bool takes_planar(const ConvArgs& args);

// What is turned: bytes of weights used together (direct) or of transformed inputs in a block (Winograd), how the grid
// is shared, threads; those of linear where the convolution is a plain matrix product. None for grouped and depthwise.
enum ConvKnob : int { kConvBytes, kConvGrid, kConvThreads };
KnobSizes conv_knobs(const ConvArgs& args);

// Depends on the dtype, the sizes, x_pixel, the flags, num_threads and the knobs; the pointers are not looked at.
size_t conv_scratch_bytes(const ConvArgs& args);
void conv(const ConvArgs& args);

}  // namespace aotpack::kernels
