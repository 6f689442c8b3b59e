// A thread takes output rows from top to bottom, a few at a time: a band. The depthwise result is in a buffer from
// which it is projected. What is expanded is in a ring of rows, where those that the next output rows share stay; or
// all of it is expanded first, by the threads that read it.
#include "depthwise_block.h"

#include "conv_depthwise.h"
#include "depthwise_strip.h"
#include "linear.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kBandBytes = 384 << 10;    // of rows between the convolutions, in the second-level cache
constexpr int64_t kWeightBytes = 512 << 10;  // of pointwise weights, which go by once per band; beside them
constexpr int64_t kMaxBandRows = 8;          // of output in a band
constexpr int64_t kLeastRing = 6;            // rows that a thread expands for each that another one expands as well

void expand(const DepthwiseBlockArgs& g, int64_t pixels, const void* x, void* y, int threads) {
  linear({g.dtype, pixels, g.channels, g.c, x, g.x_pixel, g.expand.w_packed, g.expand.bias, nullptr, g.channels,
          g.expand.act, y, g.channels, threads});
}
void project(const DepthwiseBlockArgs& g, int64_t pixels, const void* x, const void* residual, void* y, int threads) {
  linear({g.dtype, pixels, g.oc, g.channels, x, g.channels, g.project.w_packed, g.project.bias, residual, g.oc,
          g.project.act, y, g.oc, threads});
}

bool expands(const DepthwiseBlockArgs& g) { return g.expand.w_packed != nullptr; }
bool projects(const DepthwiseBlockArgs& g) { return g.project.w_packed != nullptr; }

enum class Way {
  ring,        // rows are expanded as bands need them, those on the border of two threads by both
  expanded,    // all rows are expanded, each by the thread that reads most of it, before the first band
  one_by_one,  // one convolution after the other
};

struct Plan {
  Way way;
  int threads;
  int64_t rows;  // of output in a band
  int64_t ring;  // rows of the input of the depthwise convolution under them
};

Plan plan(const DepthwiseBlockArgs& g, const ConvArgs& d) {
  const int64_t element = static_cast<int64_t>(dtype_size(g.dtype)), reach = rows_under(d, 1);
  const int64_t pixels_in = g.n * g.in[0] * g.in[1], pixels_out = g.n * g.out[0] * g.out[1];
  const double work = (expands(g) ? static_cast<double>(pixels_in) * static_cast<double>(g.c * g.channels) : 0.0) +
                      (projects(g) ? static_cast<double>(pixels_out) * static_cast<double>(g.oc * g.channels) : 0.0) +
                      static_cast<double>(pixels_out) * static_cast<double>(g.kernel[0] * g.kernel[1] * g.channels);
  Plan p = {};
  p.threads = worth_threads(2.0 * work / 100e3, g.num_threads);
  const int64_t in_row = expands(g) ? g.in[1] * g.channels * element : 0;
  const int64_t out_row = projects(g) ? g.out[1] * g.channels * element : 0;
  const int64_t each = max64(1, g.stride[0] * in_row + out_row), overlap = (reach - g.stride[0]) * in_row;
  p.rows = max64(1, min64(kMaxBandRows, (kBandBytes - overlap) / each));
  p.ring = rows_under(d, p.rows);
  const int64_t weights = ((expands(g) ? g.c : 0) + (projects(g) ? g.oc : 0)) * g.channels * element;
  const int64_t own = g.n * g.out[0] / p.threads, again = expands(g) ? max64(0, reach - g.stride[0]) : 0;
  const bool is_large = pixels_in * g.channels * element > kBandBytes;
  if (weights > kWeightBytes || p.rows * out_row > 2 * kBandBytes) {
    p.way = Way::one_by_one;
  } else if (is_large && (p.threads == 1 || own * g.stride[0] >= kLeastRing * again) &&
             p.ring * in_row + p.rows * out_row <= 2 * kBandBytes) {
    p.way = Way::ring;
  } else {
    // Where one convolution is done before the next begins, threads read what others wrote; here only rows at the
    // border between two of them are.
    p.way = p.threads > 1 ? Way::expanded : Way::one_by_one;
    p.rows = max64(1, min64(kMaxBandRows, kBandBytes / max64(1, out_row)));
    p.ring = 0;
  }
  return p;
}

// What threads share, and what each has.
struct Buffers {
  float* bias;
  float* weights;
  char* zeros;
  char* expanded;  // all of it
  char* ring;
  char* band;  // or all that is projected
  const void** pointers;
  char* depthwise;  // scratch of the depthwise convolution alone
  int64_t ring_each, band_each, pointers_each;
  size_t bytes;
};

Buffers carve(const DepthwiseBlockArgs& g, const ConvArgs& d, const Plan& p, void* scratch) {
  const int64_t element = static_cast<int64_t>(dtype_size(g.dtype)), threads = max64(g.num_threads, 1);
  Scratch from(scratch);
  Buffers b = {};
  if (p.way == Way::one_by_one) {
    b.expanded = expands(g) ? from.take<char>(g.n * g.in[0] * g.in[1] * g.channels * element) : nullptr;
    b.band = projects(g) ? from.take<char>(g.n * g.out[0] * g.out[1] * g.channels * element) : nullptr;
    b.depthwise = from.take<char>(static_cast<int64_t>(conv_depthwise_scratch_bytes(d)));
    b.bytes = from.bytes();
    return b;
  }
  b.bias = from.take<float>(round_up(g.channels, kPanel));
  b.weights = from.take<float>(g.kernel[0] * g.kernel[1] * round_up(g.channels, kWidth));
  b.zeros = from.take<char>(g.channels * element);
  const bool is_ring = p.way == Way::ring;
  b.expanded = expands(g) && !is_ring ? from.take<char>(g.n * g.in[0] * g.in[1] * g.channels * element) : nullptr;
  b.ring_each = expands(g) && is_ring ? round_up(p.ring * g.in[1] * g.channels * element, 64) : 0;
  b.band_each = projects(g) ? round_up(p.rows * g.out[1] * g.channels * element, 64) : 0;
  b.pointers_each = strip_pointers(d, p.rows, columns_under(d, outputs_at_once(d)));
  b.ring = from.take<char>(b.ring_each * threads);
  b.band = from.take<char>(b.band_each * threads);
  b.pointers = from.take<const void*>(b.pointers_each * threads);
  b.bytes = from.bytes();
  return b;
}

template <class T>
class Bands {
 public:
  Bands(const DepthwiseBlockArgs& g, const ConvArgs& d, const Plan& p, const Buffers& b, int thread)
      : g_(g),
        d_(d),
        p_(p),
        b_(b),
        ring_(reinterpret_cast<T*>(b.ring + thread * b.ring_each)),
        band_(reinterpret_cast<T*>(b.band + thread * b.band_each)),
        pointers_(reinterpret_cast<const T**>(b.pointers + thread * b.pointers_each)),
        outputs_(outputs_at_once(d)),
        columns_(columns_under(d, outputs_)),
        fixed_(fixed_for<T>(d, outputs_)) {}

  // Output rows of all images, counted together.
  void run(Range mine) {
    for (int64_t row = mine.begin; row < mine.end;) {
      const int64_t image = row / g_.out[0], oh = row % g_.out[0];
      const int64_t rows = min64(min64(p_.rows, g_.out[0] - oh), mine.end - row);
      if (row == mine.begin || oh == 0) ready_ = 0;
      band(image, oh, rows);
      row += rows;
    }
  }

 private:
  void band(int64_t image, int64_t oh, int64_t rows) {
    const int64_t top = oh * g_.stride[0] - g_.padding[0];
    if (expands(g_)) expand_rows(image, max64(max64(top, 0), ready_), min64(top + rows_under(d_, rows), g_.in[0]));
    const int64_t at = (image * g_.out[0] + oh) * g_.out[1];
    T* const to = projects(g_) ? band_ : static_cast<T*>(g_.y) + at * g_.channels;
    for (int64_t ow = 0; ow < g_.out[1]; ow += outputs_) {
      point(image, top, rows_under(d_, rows), ow);
      Strip<T> t = {};
      t.rows = rows;
      t.inputs = pointers_;
      t.input_step = g_.stride[0] * columns_;
      t.row_step = g_.dilation[0] * columns_;
      t.kernel_rows = g_.kernel[0];
      t.taps = g_.kernel[0] * g_.kernel[1];
      t.c = g_.channels;
      t.bias = b_.bias;
      if (!projects(g_) && g_.residual != nullptr) {
        t.residual = static_cast<const T*>(g_.residual) + (at + ow) * g_.channels;
      }
      t.y = to + ow * g_.channels;
      t.y_step = g_.out[1] * g_.channels;
      t.valid = static_cast<int>(min64(outputs_, g_.out[1] - ow));
      t.act = g_.depthwise.act;
      for (int64_t from = 0; from < g_.channels; from += chunk_of(d_)) {
        t.weights = b_.weights + from * t.taps;
        run_strip(d_, t, fixed_, outputs_, from, min64(chunk_of(d_), g_.channels - from));
      }
    }
    if (projects(g_)) {
      project(g_, rows * g_.out[1], band_, advance(g_.residual, at * g_.oc, g_.dtype),
              advance(g_.y, at * g_.oc, g_.dtype), 1);
    }
  }

  // Input rows [begin, end) of an image, as far as they lie next to each other in the ring.
  void expand_rows(int64_t image, int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t slot = begin % p_.ring, rows = min64(end - begin, p_.ring - slot);
      expand(g_, rows * g_.in[1], advance(g_.x, (image * g_.in[0] + begin) * g_.in[1] * g_.x_pixel, g_.dtype),
             ring_ + slot * g_.in[1] * g_.channels, 1);
      begin += rows;
      ready_ = begin;
    }
  }

  // pointers_[row][column] for `rows` rows from `top` on, under the output pixels from `ow` on.
  void point(int64_t image, int64_t top, int64_t rows, int64_t ow) {
    const T* const zeros = reinterpret_cast<const T*>(b_.zeros);
    const T** to = pointers_;
    const int64_t pixel = expands(g_) ? g_.channels : g_.x_pixel;
    for (int64_t ih = top; ih < top + rows; ++ih, to += columns_) {
      const bool inside = ih >= 0 && ih < g_.in[0];
      const T* row = nullptr;
      if (inside && expands(g_)) {
        row = ring_ + ih % p_.ring * g_.in[1] * pixel;
      } else if (inside) {
        row = static_cast<const T*>(g_.x) + (image * g_.in[0] + ih) * g_.in[1] * pixel;
      }
      const int64_t first = ow * g_.stride[1] - g_.padding[1];
      for (int column = 0; column < columns_; ++column) {
        const int64_t iw = first + column;
        to[column] = inside && iw >= 0 && iw < g_.in[1] ? row + iw * pixel : zeros;
      }
    }
  }

  const DepthwiseBlockArgs& g_;
  const ConvArgs& d_;
  const Plan& p_;
  const Buffers& b_;
  T* const ring_;
  T* const band_;
  const T** const pointers_;
  const int outputs_, columns_;
  const Fixed<T> fixed_;
  int64_t ready_ = 0;  // rows of the image before it that are needed are in the ring
};

// A thread's share of the pixels, in whole tiles: about those that its output rows read.
void expand_part(const DepthwiseBlockArgs& g, char* expanded, int thread, int threads) {
  const int64_t pixels = g.n * g.in[0] * g.in[1];
  const Range tiles = share(ceil_div(pixels, kMaxRows), thread, threads);
  const int64_t begin = tiles.begin * kMaxRows, end = min64(tiles.end * kMaxRows, pixels);
  if (begin >= end) return;
  expand(g, end - begin, advance(g.x, begin * g.x_pixel, g.dtype),
         expanded + begin * g.channels * static_cast<int64_t>(dtype_size(g.dtype)), 1);
}

void one_by_one(const DepthwiseBlockArgs& g, ConvArgs d, const Buffers& b) {
  d.x = g.x;
  d.x_pixel = g.x_pixel;
  if (expands(g)) {
    expand(g, g.n * g.in[0] * g.in[1], g.x, b.expanded, g.num_threads);
    d.x = b.expanded;
    d.x_pixel = g.channels;
  }
  d.y = projects(g) ? b.band : g.y;
  d.residual = projects(g) ? nullptr : g.residual;
  d.scratch = b.depthwise;
  conv_depthwise(d);
  if (projects(g)) {
    project(g, g.n * g.out[0] * g.out[1], b.band, g.residual, g.y, g.num_threads);
  }
}

}  // namespace

ConvArgs depthwise_of(const DepthwiseBlockArgs& g) {
  ConvArgs d = {};
  d.dtype = g.dtype;
  d.n = g.n;
  d.c = d.oc = d.groups = g.channels;
  for (int i = 0; i < 3; ++i) {
    d.in[i] = i == 0 ? 1 : g.in[i - 1];
    d.out[i] = i == 0 ? 1 : g.out[i - 1];
    d.kernel[i] = i == 0 ? 1 : g.kernel[i - 1];
    d.stride[i] = i == 0 ? 1 : g.stride[i - 1];
    d.padding[i] = i == 0 ? 0 : g.padding[i - 1];
    d.dilation[i] = i == 0 ? 1 : g.dilation[i - 1];
  }
  d.w_packed = g.depthwise.w_packed;
  d.bias = g.depthwise.bias;
  d.act = g.depthwise.act;
  d.num_threads = g.num_threads;
  return d;
}

size_t depthwise_block_scratch_bytes(const DepthwiseBlockArgs& g) {
  const ConvArgs d = depthwise_of(g);
  // Counted from any address.
  return carve(g, d, plan(g, d), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void depthwise_block(const DepthwiseBlockArgs& g) {
  if (g.n * g.out[0] * g.out[1] <= 0 || g.channels <= 0 || g.oc <= 0) return;
  const ConvArgs d = depthwise_of(g);
  const Plan p = plan(g, d);
  const Buffers b = carve(g, d, p, g.scratch);
  if (p.way == Way::one_by_one) return one_by_one(g, d, b);
  depthwise_bias(d, b.bias);
  std::memset(b.zeros, 0, static_cast<size_t>(g.channels) * dtype_size(g.dtype));
  with_type(g.dtype, [&]<class T>() {
    arrange_depthwise<T>(d, 0, g.channels, b.weights);
    parallel(p.threads, [&](int thread, int threads) {
      DepthwiseBlockArgs rest = g;
      if (p.way == Way::expanded && expands(g)) {
        expand_part(g, b.expanded, thread, threads);
        team_barrier(threads);
        rest.x = b.expanded;
        rest.x_pixel = g.channels;
        rest.expand = {};
      }
      Bands<T>(rest, d, p, b, thread).run(share(g.n * g.out[0], thread, threads));
    });
  });
}

}  // namespace aotpack::kernels
