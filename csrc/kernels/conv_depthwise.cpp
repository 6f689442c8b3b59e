#include "conv_depthwise.h"

#include "depthwise_strip.h"
#include "micro.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

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
  Range channels;

  const T* x() const { return static_cast<const T*>(g.x); }
  const T* zeros() const { return reinterpret_cast<const T*>(b.zeros); }

  // The channels of a strip whose first pixel is `ow` of output row `row`.
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
    for (int64_t from = channels.begin; from < channels.end; from += chunk_of(g)) {
      const int64_t count = min64(chunk_of(g), channels.end - from);
      arrange_depthwise<T>(g, from, count, weights);
      t.weights = weights;
      run_strip(g, t, fixed, outputs, from, count);
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

// Output rows and channels of a thread: where the pointwise convolution that usually comes before gave it the same
// pixels, or the same channels of all pixels, the thread finds them in its cache. Lines that another core wrote cost
// more than the products.
Rectangle share_of(const ConvArgs& g, int thread, int threads) {
  const int64_t rows = g.n * g.out[0] * g.out[1], panels = ceil_div(g.c, kPanel);
  const int cuts = row_cuts(row_tiles(g.n * g.in[0] * g.in[1] * g.in[2]), panels, kMaxRows, kPanel, threads);
  Rectangle mine = cell(rows, panels, cuts, thread, threads);
  mine.columns = {mine.columns.begin * kPanel, min64(mine.columns.end * kPanel, g.c)};
  return mine;
}

template <class T>
void run(const ConvArgs& g, const Buffers& b, int thread, int threads) {
  const Rectangle all = share_of(g, thread, threads);
  if (all.columns.begin >= all.columns.end) return;
  const Range mine = all.rows;
  const int outputs = outputs_at_once(g);
  const Runner<T> runner = {g,
                            b,
                            reinterpret_cast<const T**>(b.pointers + thread * b.pointers_each),
                            b.weights + thread * b.weights_each,
                            outputs,
                            columns_under(g, outputs),
                            fixed_for<T>(g, outputs),
                            all.columns};
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
  depthwise_bias(g, b.bias);
  std::memset(b.zeros, 0, static_cast<size_t>(g.c) * dtype_size(g.dtype));
  const double outputs = static_cast<double>(g.n * g.out[0] * g.out[1]) * static_cast<double>(g.out[2] * g.c);
  const double taps = static_cast<double>(g.kernel[0] * g.kernel[1] * g.kernel[2]);
  const int threads = worth_threads(outputs * (taps * 2.0 / 100e3 + 4.0 / 20e3), g.num_threads);
  parallel(threads,
           [&](int thread, int count) { with_type(g.dtype, [&]<class T>() { run<T>(g, b, thread, count); }); });
}

}  // namespace aotpack::kernels
