#include "conv_depthwise.h"

#include <limits>

#include "conv_strip.h"
#include "element_types.h"
#include "epilogue.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int kMaxColumns = 8;  // output pixels of a row in registers

// Channels that are walked down the rows together, so that inputs shared by kernel rows stay in the nearest cache.
int64_t chunk_of(const ConvArgs& g) { return g.kernel[2] >= 5 ? 32 : 128; }

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
int outputs_at_once(const ConvArgs& g) {
  const int64_t width = max64(g.out[2], 1);
  return static_cast<int>(max64(4, ceil_div(width, ceil_div(width, kMaxColumns))));
}

struct Buffers {
  float* bias;
  float* weights;  // per thread, of one chunk
  int64_t weights_each;
  char* zeros;
  const void** pointers;
  int64_t pointers_each;
  size_t bytes;
};
Buffers carve(const ConvArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.bias = from.take<float>(round_up(g.c, kPanel));
  b.weights_each = g.kernel[0] * g.kernel[1] * g.kernel[2] * chunk_of(g);
  b.weights = from.take<float>(b.weights_each * max64(g.num_threads, 1));
  b.zeros = from.take<char>(g.c * static_cast<int64_t>(dtype_size(g.dtype)));
  const int columns = columns_under(g, outputs_at_once(g));
  b.pointers_each = strip_pointers(g, band_rows(g, static_cast<int64_t>(dtype_size(g.dtype))), columns);
  b.pointers = from.take<const void*>(b.pointers_each * max64(g.num_threads, 1));
  b.bytes = from.bytes();
  return b;
}

template <class T>
struct Runner {
  const ConvArgs& g;
  const Buffers& b;
  const T** pointers;
  float* weights;
  int outputs, columns;
  Fixed<T> fixed;

  const T* x() const { return static_cast<const T*>(g.x); }
  const T* zeros() const { return reinterpret_cast<const T*>(b.zeros); }

  // Weights of a chunk as the strips want them: vectors in the order of use, close together.
  void arrange(int64_t from, int64_t channels) const {
    float* to = weights;
    for (int64_t channel = 0; channel < channels; channel += kWidth) {
      const T* w = static_cast<const T*>(g.w_packed) + from + channel;
      const int lanes = static_cast<int>(min64(kWidth, channels - channel));
      for (int64_t tap = 0; tap < g.kernel[0] * g.kernel[1] * g.kernel[2]; ++tap, w += g.c, to += kWidth) {
        store(to, lanes == kWidth ? load(w) : load_partial(w, lanes));
      }
    }
  }

  // All channels of a strip whose first pixel is `ow` of output row `row`.
  void strip(Strip<T> t, int64_t row, int64_t ow) const {
    const int64_t at = (row * g.out[2] + ow) * g.c;
    t.taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    t.c = g.c;
    t.bias = b.bias;
    t.residual = g.residual == nullptr ? nullptr : static_cast<const T*>(g.residual) + at;
    t.y = static_cast<T*>(g.y) + at;
    t.y_step = g.out[2] * g.c;
    t.valid = static_cast<int>(min64(outputs, g.out[2] - ow));
    t.act = g.act;
    for (int64_t from = 0; from < g.c; from += chunk_of(g)) {
      const int64_t channels = min64(chunk_of(g), g.c - from);
      const int64_t whole = fixed == nullptr ? 0 : channels / kWidth * kWidth;
      arrange(from, channels);
      t.weights = weights;
      t.from = from;
      t.channels = whole;
      if (whole > 0) fixed(t);
      t.weights += whole * t.taps;
      t.from = from + whole;
      t.channels = channels - whole;
      if (t.channels > 0) strip_any(t, g.kernel[2], g.stride[2], g.dilation[2], outputs);
    }
  }

  // Output rows [begin, end) of one image, no kernel depth. Pointers are set up once for all of them.
  void band(int64_t image, int64_t od, int64_t begin, int64_t end) const {
    for (int64_t ow = 0; ow < g.out[2]; ow += outputs) {
      point_band(g, x(), zeros(), image, od, begin, end - begin, ow, columns, pointers);
      Strip<T> t = {};
      t.rows = end - begin;
      t.inputs = pointers;
      t.input_step = g.stride[1] * columns;
      t.row_step = g.dilation[1] * columns;
      t.kernel_rows = g.kernel[1];
      strip(t, (image * g.out[0] + od) * g.out[1] + begin, ow);
    }
  }

  // One output row with kernel depth: the (depth, height) taps are pointed to one by one.
  void deep_row(int64_t image, int64_t od, int64_t oh) const {
    for (int64_t ow = 0; ow < g.out[2]; ow += outputs) {
      point_deep(g, x(), zeros(), image, od, oh, ow, columns, pointers);
      Strip<T> t = {};
      t.rows = 1;
      t.inputs = pointers;
      t.row_step = columns;
      t.kernel_rows = g.kernel[0] * g.kernel[1];
      strip(t, (image * g.out[0] + od) * g.out[1] + oh, ow);
    }
  }
};

template <class T>
void run(const ConvArgs& g, const Buffers& b, int thread, int threads) {
  const int outputs = outputs_at_once(g);
  const Runner<T> runner = {g,
                            b,
                            reinterpret_cast<const T**>(b.pointers + thread * b.pointers_each),
                            b.weights + thread * b.weights_each,
                            outputs,
                            columns_under(g, outputs),
                            fixed_for<T>(g, outputs)};
  const Range mine = share(g.n * g.out[0] * g.out[1], thread, threads);
  const int64_t most = band_rows(g, sizeof(T));
  for (int64_t row = mine.begin; row < mine.end;) {
    const int64_t oh = row % g.out[1], od = row / g.out[1] % g.out[0], image = row / g.out[1] / g.out[0];
    if (is_flat(g)) {
      const int64_t end = min64(min64(oh + most, g.out[1]), oh + mine.end - row);
      runner.band(image, od, oh, end);
      row += end - oh;
    } else {
      runner.deep_row(image, od, oh);
      ++row;
    }
  }
}

}  // namespace

size_t conv_depthwise_scratch_bytes(const ConvArgs& g) {
  return carve(g, reinterpret_cast<void*>(uintptr_t{64})).bytes;  // counted from any address
}

void conv_depthwise(const ConvArgs& g) {
  const Buffers b = carve(g, g.scratch);
  if (g.bias != nullptr) {
    widen(g.bias, g.dtype, g.c, b.bias);
  } else {
    for (int64_t i = 0; i < g.c; ++i) b.bias[i] = 0.0f;
  }
  for (int64_t i = g.c; i < round_up(g.c, kPanel); ++i) b.bias[i] = 0.0f;
  std::memset(b.zeros, 0, static_cast<size_t>(g.c) * dtype_size(g.dtype));
  const double outputs = static_cast<double>(g.n * g.out[0] * g.out[1]) * static_cast<double>(g.out[2] * g.c);
  const double taps = static_cast<double>(g.kernel[0] * g.kernel[1] * g.kernel[2]);
  const int threads = worth_threads(outputs * (taps * 2.0 / 100e3 + 4.0 / 20e3), g.num_threads);
  parallel(threads,
           [&](int thread, int count) { with_type(g.dtype, [&]<class T>() { run<T>(g, b, thread, count); }); });
}

}  // namespace aotpack::kernels
