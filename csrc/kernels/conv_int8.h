// Convolutions and linears of 8-bit activations by int8 weights: exact int32 sums, then a fused requantization.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// How the kernel's dims are split into runs: `run` bytes that lie side by side in x, for each of `outer` taps.
struct Int8Runs {
  int64_t outer, run;
  int64_t steps() const { return ceil_div(run, 4); }  // of four bytes
};

enum class Int8Result : int32_t { f32 = 0, u8 = 1, s8 = 2 };

// x is [n, in.., c] and y [n, out.., oc], both dense, the spatial dims as in conv.h. An x of int8 is read as uint8: 128
// is added to each element, and so has been to x_zero. With cg = c / groups, og = oc / groups and taps row-major,
// weights are packed as
//   packed[fours][round_up(c, 64)][4]                       depthwise: cg == og == 1; taps in fours, channels in the
//                                                           order of int8_depthwise_column, as arrays by channel too;
//   packed[groups][ceil(og / 32)][outer * steps][32][4]     otherwise; bytes of each run in fours (int8_runs).
// What is beyond oc, og, taps or the end of a run is zero. Weights are w - weight_zero where weight_zero is not 0.
// Arrays by channel have `columns` elements, in the order of the packed columns. For each output channel
//   sum = init + sum over the window of x * (w - weight_zero); x outside of `in` is x_zero, the term of which
//         -x_zero * sum(w - weight_zero) is in `init`;
//   v   = clamp(sum * factor + offset, low, high), and rounded to even if round_first;
//   v   = clamp(v * keep + (residual - residual_zero) * gain, low_after, high_after) if there is a residual;
//   y   = v, or round_to_even(v) + y_zero as a byte: the last limits are whole numbers then, and keep that in its
//   range.
struct Int8ConvArgs {
  int64_t n, c, oc, groups;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3];
  int64_t before[3], after[3];  // padding
  bool x_signed, residual_signed;
  Int8Result result;
  const void* x;
  const int8_t* w_packed;
  const int32_t* init;
  const float* factor;
  const float* offset;
  const int32_t* weight_zero;  // null: all are 0
  int32_t x_zero;              // of uint8
  float low, high;
  bool round_first;
  const void* residual;  // bytes, dense like y; or null; may be y
  float keep, gain, residual_zero, low_after, high_after;
  int32_t y_zero;
  void* y;  // must not overlap x
  int num_threads;
  void* scratch;       // conv_int8_scratch_bytes of it, any alignment
  bool plain = false;  // without instructions that the target at large does not have
};

inline bool int8_depthwise(int64_t c, int64_t oc, int64_t groups) { return groups > 1 && c == groups && oc == groups; }

// Taps along the width lie side by side unless they are dilated or other groups lie between them.
inline Int8Runs int8_runs(int64_t cg, int64_t groups, const int64_t* kernel, const int64_t* dilation) {
  const bool merged = groups == 1 && (dilation[2] == 1 || kernel[2] == 1);
  const int64_t rows = kernel[0] * kernel[1];
  return merged ? Int8Runs{rows, kernel[2] * cg} : Int8Runs{rows * kernel[2], cg};
}

inline constexpr int64_t kDepthwiseBlock = 64;  // channels of the widest vectors

inline int64_t int8_columns(int64_t c, int64_t oc, int64_t groups) {
  return int8_depthwise(c, oc, groups) ? round_up(c, kDepthwiseBlock) : groups * round_up(oc / groups, kPanel);
}

// Where channel c of a depthwise convolution is packed: as bytes of four pixels lie after they have been interleaved.
inline int64_t int8_depthwise_column(int64_t c) { return c / 64 * 64 + c % 16 / 4 * 16 + c % 64 / 16 * 4 + c % 4; }

// Three taps along the width are a four of their own, with 0 at the end; and behind all such fours they come once more
// with 0 at the beginning, for the next pixel. Otherwise taps are in fours as they come.
struct Int8DepthwiseFours {
  int64_t count, taps;  // of a window; of each but the last
};
inline Int8DepthwiseFours int8_depthwise_fours(const int64_t* kernel) {
  const int64_t rows = kernel[0] * kernel[1];
  return kernel[2] == 3 ? Int8DepthwiseFours{rows, 3} : Int8DepthwiseFours{ceil_div(rows * kernel[2], 4), 4};
}

// Depends on sizes, x_signed and num_threads; the pointers are not looked at.
size_t conv_int8_scratch_bytes(const Int8ConvArgs& args);
void conv_int8(const Int8ConvArgs& args);

}  // namespace aotpack::kernels
