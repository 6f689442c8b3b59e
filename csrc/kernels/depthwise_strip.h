// Strips of output pixels of a depthwise convolution, all channels of which are in one place.
#pragma once

#include <limits>

#include "conv_strip.h"
#include "element_types.h"
#include "epilogue.h"

namespace aotpack::kernels {

inline constexpr int kMaxColumns = 8;  // output pixels of a row in registers

// Channels that are walked down the rows together, so that inputs shared by kernel rows stay in the nearest cache.
inline int64_t chunk_of(const ConvArgs& g) { return g.kernel[2] >= 5 ? 32 : 128; }

// `valid` output pixels next to each other, in each of `rows` output rows; channels [from, from + channels).
template <class T>
struct Strip {
  int64_t rows;
  const T* const* inputs;  // [input rows][columns], see columns_under
  int64_t input_step;      // pointers from one output row to the next
  int64_t row_step;        // pointers from one kernel row to the next
  int64_t kernel_rows;
  const float* weights;  // [ceil(channels / kWidth)][taps][kWidth]
  int64_t taps;
  int64_t c;
  const float* bias;
  const T* residual;
  T* y;
  int64_t y_step;  // elements from one output row to the next
  int valid;
  int64_t from, channels;
  Act act;
};

template <int kOutputs, class T>
AOTPACK_INLINE void emit(const Strip<T>& t, const vf* acc, int64_t row, int64_t channel, int lanes) {
  const bool clamp = t.act == Act::relu || t.act == Act::relu6;
  const bool simple = lanes == kWidth && (clamp || t.act == Act::none);
  T* y = t.y + row * t.y_step + channel;
  const T* residual = t.residual == nullptr ? nullptr : t.residual + row * t.y_step + channel;
  if (!simple) {
    alignas(64) float sums[kOutputs * kWidth];
    AOTPACK_UNROLL
    for (int o = 0; o < kOutputs; ++o) store(sums + o * kWidth, acc[o]);
    finish(sums, kWidth, t.valid, lanes, dtype_of<T>, residual, t.c, t.act, y, t.c);
    return;
  }
  const vf low = vset(clamp ? 0.0f : -std::numeric_limits<float>::infinity());
  const vf high = vset(t.act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity());
  AOTPACK_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    if (o < t.valid) {
      vf x = acc[o];
      if (residual != nullptr) x += load(residual + o * t.c);
      store(y + o * t.c, at_most(at_least(x, low), high));
    }
  }
}

template <class T, int kKernel, int kStride, int kOutputs>
void strip_fixed(const Strip<T>& t) {
  constexpr int kColumns = (kOutputs - 1) * kStride + kKernel;
  for (int64_t out = 0; out < t.rows; ++out) {
    const float* weights = t.weights;
    for (int64_t channel = t.from; channel < t.from + t.channels; channel += kWidth) {
      vf acc[kOutputs];
      const vf bias = load(t.bias + channel);
      AOTPACK_UNROLL
      for (int o = 0; o < kOutputs; ++o) acc[o] = bias;
      const T* const* inputs = t.inputs + out * t.input_step;
      for (int64_t row = 0; row < t.kernel_rows; ++row, inputs += t.row_step, weights += kKernel * kWidth) {
        vf w[kKernel];
        AOTPACK_UNROLL
        for (int k = 0; k < kKernel; ++k) w[k] = load(weights + k * kWidth);
        AOTPACK_UNROLL
        for (int column = 0; column < kColumns; ++column) {
          const vf x = load(inputs[column] + channel);
          AOTPACK_UNROLL
          for (int o = 0; o < kOutputs; ++o) {
            const int k = column - o * kStride;
            if (k >= 0 && k < kKernel) acc[o] += x * w[k];
          }
        }
      }
      emit<kOutputs>(t, acc, out, channel, kWidth);
    }
  }
}

// Any kernel width, stride and dilation, and the channels that do not fill a vector.
template <class T>
void strip_any(const Strip<T>& t, int64_t kernel, int64_t stride, int64_t dilation, int outputs) {
  for (int64_t out = 0; out < t.rows; ++out) {
    const float* weights = t.weights;
    for (int64_t channel = t.from; channel < t.from + t.channels; channel += kWidth) {
      const int lanes = static_cast<int>(min64(kWidth, t.from + t.channels - channel));
      vf acc[kMaxColumns] = {};
      for (int o = 0; o < outputs; ++o) acc[o] = load(t.bias + channel);
      const T* const* inputs = t.inputs + out * t.input_step;
      for (int64_t row = 0; row < t.kernel_rows; ++row, inputs += t.row_step) {
        for (int64_t k = 0; k < kernel; ++k, weights += kWidth) {
          const vf w = load(weights);
          for (int o = 0; o < outputs; ++o) {
            const T* x = inputs[o * stride + k * dilation] + channel;
            acc[o] += w * (lanes == kWidth ? load(x) : load_partial(x, lanes));
          }
        }
      }
      emit<kMaxColumns>(t, acc, out, channel, lanes);
    }
  }
}

template <class T>
using Fixed = void (*)(const Strip<T>&);

template <class T, int kKernel, int kStride>
Fixed<T> fixed_for(int outputs) {
  switch (outputs) {
    case 8:
      return strip_fixed<T, kKernel, kStride, 8>;
    case 7:
      return strip_fixed<T, kKernel, kStride, 7>;
    case 6:
      return strip_fixed<T, kKernel, kStride, 6>;
    case 5:
      return strip_fixed<T, kKernel, kStride, 5>;
    default:
      return strip_fixed<T, kKernel, kStride, 4>;
  }
}

template <class T>
Fixed<T> fixed_for(const ConvArgs& g, int outputs) {
  if (g.dilation[2] != 1) return nullptr;
  const int64_t kernel = g.kernel[2], stride = g.stride[2];
  if (kernel == 3 && stride == 1) return fixed_for<T, 3, 1>(outputs);
  if (kernel == 3 && stride == 2) return fixed_for<T, 3, 2>(outputs);
  if (kernel == 5 && stride == 1) return fixed_for<T, 5, 1>(outputs);
  if (kernel == 5 && stride == 2) return fixed_for<T, 5, 2>(outputs);
  if (kernel == 7 && stride == 1) return fixed_for<T, 7, 1>(outputs);
  return nullptr;
}

// Output pixels of a row that are computed together: as even as can be, and a size that there is code for.
inline int outputs_at_once(const ConvArgs& g) {
  const int64_t width = max64(g.out[2], 1);
  return static_cast<int>(max64(4, ceil_div(width, ceil_div(width, kMaxColumns))));
}

// The bias as floats, or zeros, for all channels and up to the end of a panel.
inline void depthwise_bias(const ConvArgs& g, float* to) {
  if (g.bias != nullptr) widen(g.bias, g.dtype, g.c, to);
  for (int64_t i = g.bias == nullptr ? 0 : g.c; i < round_up(g.c, kPanel); ++i) to[i] = 0.0f;
}

// Weights of the channels [from, from + channels) as the strips want them: vectors in the order of use, close together.
template <class T>
void arrange_depthwise(const ConvArgs& g, int64_t from, int64_t channels, float* to) {
  for (int64_t channel = 0; channel < channels; channel += kWidth) {
    const T* w = static_cast<const T*>(g.w_packed) + from + channel;
    const int lanes = static_cast<int>(min64(kWidth, channels - channel));
    for (int64_t tap = 0; tap < g.kernel[0] * g.kernel[1] * g.kernel[2]; ++tap, w += g.c, to += kWidth) {
      store(to, lanes == kWidth ? load(w) : load_partial(w, lanes));
    }
  }
}

// The channels [from, from + channels) of a strip, whose weights `t` has; `fixed` may be null.
template <class T>
void run_strip(const ConvArgs& g, Strip<T> t, Fixed<T> fixed, int outputs, int64_t from, int64_t channels) {
  const int64_t whole = fixed == nullptr ? 0 : channels / kWidth * kWidth;
  t.from = from;
  t.channels = whole;
  if (whole > 0) fixed(t);
  t.weights += whole * t.taps;
  t.from = from + whole;
  t.channels = channels - whole;
  if (t.channels > 0) strip_any(t, g.kernel[2], g.stride[2], g.dilation[2], outputs);
}

}  // namespace aotpack::kernels
