// What an output pixel reads is copied into one row, some hundred pixels at a time, which are then multiplied with the
// weights as a linear's. The copies stay in the second-level cache and are read once for every panel of outputs.
#include "conv_bf16.h"

#include "bf16_copy.h"
#include "bf16_product.h"
#include "linear_bf16.h"
#include "parallel.h"
#include "transpose_copy.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kCopyBytes = 512 << 10;  // of copied rows at a time
constexpr int64_t kFewestRows = 64;
// Between copied rows: powers of two apart they would evict each other. And what a copy writes behind its end.
constexpr int64_t kSpace = 32;

struct Plan {
  int64_t cg, og;          // channels of a group
  int64_t k;               // elements that an output reads
  int64_t stride;          // from one copied row to the next
  int64_t rows;            // copied at a time
  int64_t pixels, panels;  // of a group's outputs
};

Plan plan(const ConvArgs& g) {
  Plan p = {};
  p.cg = g.c / g.groups;
  p.og = g.oc / g.groups;
  p.k = g.kernel[0] * g.kernel[1] * g.kernel[2] * p.cg;
  // Whole steps of the instructions, so that the ends of rows need no copies of their own.
  p.stride = bf16_padded(p.k) + kSpace;
  p.pixels = g.n * g.out[0] * g.out[1] * g.out[2];
  p.rows = min64(p.pixels, max64(kFewestRows, kCopyBytes / (2 * p.stride) / kBf16Tile * kBf16Tile));
  p.panels = ceil_div(p.og, kPanel);
  return p;
}

// Where an output pixel lies.
struct Position {
  int64_t image, d, h, w;
};

Position position_of(const ConvArgs& g, int64_t pixel) {
  const int64_t row = pixel / g.out[2], slice = row / g.out[1];
  return {slice / g.out[0], slice % g.out[0], row % g.out[1], pixel % g.out[2]};
}

// One tap after the other for all pixels of a run, in ascending order: a copy may write zeros behind its end.
class Copier {
 public:
  Copier(const ConvArgs& g, const Plan& p, const bf16* x) : g_(g), p_(p), x_(x) {}

  // What `count` output pixels from `pixel` on read, each to a row of `to`: in runs that lie in one row of outputs.
  void run(int64_t pixel, int64_t count, bf16* to) const {
    while (count > 0) {
      const Position at = position_of(g_, pixel);
      const int64_t some = min64(count, g_.out[2] - at.w);
      copy_run(at, some, to);
      pixel += some;
      count -= some;
      to += some * p_.stride;
    }
  }

 private:
  void copy_run(const Position& at, int64_t count, bf16* to) const {
    const int64_t image = at.image * g_.in[0] * g_.in[1] * g_.in[2] * g_.c, row = p_.cg * g_.kernel[2];
    int64_t done = 0;
    for (int64_t i = 0; i < g_.kernel[0]; ++i) {
      const int64_t d = at.d * g_.stride[0] - g_.padding[0] + i * g_.dilation[0];
      for (int64_t j = 0; j < g_.kernel[1]; ++j, done += row) {
        const int64_t h = at.h * g_.stride[1] - g_.padding[1] + j * g_.dilation[1];
        if (d >= 0 && d < g_.in[0] && h >= 0 && h < g_.in[1]) {
          copy_lines(x_ + image + (d * g_.in[1] + h) * g_.in[2] * g_.c, at.w, count, to + done);
        } else {
          for (int64_t r = 0; r < count; ++r) copy_vectors(x_, 0, row, to + done + r * p_.stride);
        }
      }
    }
    const int64_t rest = p_.stride - kSpace - done;
    for (int64_t r = 0; rest > 0 && r < count; ++r) copy_vectors(x_, 0, rest, to + done + r * p_.stride);
  }

  // The taps of one line of x, for the outputs from column `w` on: kernel[2] pixels of cg channels each. What lies
  // outside is zero.
  void copy_lines(const bf16* line, int64_t w, int64_t count, bf16* to) const {
    const int64_t taps = g_.kernel[2], row = taps * p_.cg;
    // Taps side by side are one piece of memory.
    const bool together = taps == 1 || (g_.dilation[2] == 1 && g_.groups == 1);
    for (int64_t r = 0; r < count; ++r, to += p_.stride) {
      const int64_t left = (w + r) * g_.stride[2] - g_.padding[2];
      if (together && left >= 0 && left + taps <= g_.in[2]) {
        copy_vectors(line + left * g_.c, row, row, to);
      } else {
        copy_taps(line, left, to);
      }
    }
  }

  void copy_taps(const bf16* line, int64_t left, bf16* to) const {
    for (int64_t t = 0; t < g_.kernel[2]; ++t) {
      const int64_t column = left + t * g_.dilation[2];
      const bool inside = column >= 0 && column < g_.in[2];
      copy_vectors(line + (inside ? column * g_.c : 0), inside ? p_.cg : 0, p_.cg, to + t * p_.cg);
    }
  }

  const ConvArgs& g_;
  const Plan& p_;
  const bf16* const x_;
};

struct Buffers {
  bf16* copies;    // rows for each thread
  bf16* channels;  // x with its channels last, where it is planar
  size_t bytes;
};

Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.channels = g.planar ? from.take<bf16>(g.n * g.in[0] * g.in[1] * g.in[2] * g.c) : nullptr;
  b.copies = from.take<bf16>(p.rows * p.stride * max64(g.num_threads, 1));
  b.bytes = from.bytes();
  return b;
}

void part(const ConvArgs& g, const Plan& p, const bf16* x, bf16* copies, Range rows, Range panels) {
  for (int64_t group = panels.begin / p.panels; group * p.panels < panels.end; ++group) {
    const int64_t first = max64(panels.begin - group * p.panels, 0);
    const int64_t last = min64(panels.end - group * p.panels, p.panels);
    const int64_t column = group * p.og + first * kPanel;
    LinearArgs a = {};
    a.dtype = g.dtype;
    a.n = min64(p.og - first * kPanel, (last - first) * kPanel);
    a.k = p.k;
    a.x = copies;
    a.x_stride = p.stride;
    a.w_packed = advance(g.w_packed, (group * p.panels + first) * p.k * kPanel, g.dtype);
    a.bias = advance(g.bias, column, g.dtype);
    a.residual_stride = a.y_stride = g.oc;
    a.act = g.act;
    const Copier copier(g, p, x + group * p.cg);
    for (int64_t row = rows.begin; row < rows.end; row += p.rows) {
      a.m = min64(p.rows, rows.end - row);
      copier.run(row, a.m, copies);
      a.residual = advance(g.residual, row * g.oc + column, g.dtype);
      a.y = advance(g.y, row * g.oc + column, g.dtype);
      linear_bf16_part(a, g.dtype, {0, a.m}, {0, last - first}, true);
    }
  }
}

}  // namespace

bool takes_bf16(const ConvArgs& g) { return linear_takes_bf16(g.dtype) && !g.transposed; }

size_t conv_bf16_scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  return carve(g, plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv_bf16(const ConvArgs& g) {
  const Plan p = plan(g);
  const int64_t tiles = ceil_div(p.pixels, kBf16Tile), panels = g.groups * p.panels;
  const double depth = static_cast<double>(p.k), outputs = static_cast<double>(p.pixels) * static_cast<double>(g.oc);
  const int worth = worth_threads(2.0 * outputs * depth / kBf16Speed, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  const Buffers buffers = carve(g, p, g.scratch);
  const bf16* x = static_cast<const bf16*>(g.x);
  if (g.planar) {
    const int64_t plane = g.in[0] * g.in[1] * g.in[2];
    const int64_t sizes[] = {g.n, plane, g.c}, strides[] = {g.c * plane, 1, plane};
    transpose_copy(buffers.channels, g.x, 3, sizes, strides, sizeof(bf16), g.num_threads);
    x = buffers.channels;
  }
  parallel(threads, [&](int thread, int count) {
    // Rows are copied again by every thread that shares them.
    const Rectangle mine =
        turned_grid(g.knobs, kConvGrid, tiles, panels, 6.0 * depth * kBf16Tile, 2.0 * depth * kPanel, thread, count);
    const Range rows = {mine.rows.begin * kBf16Tile, min64(mine.rows.end * kBf16Tile, p.pixels)};
    if (rows.begin < rows.end && mine.columns.begin < mine.columns.end) {
      part(g, p, x, buffers.copies + p.rows * p.stride * thread, rows, mine.columns);
    }
  });
}

}  // namespace aotpack::kernels
