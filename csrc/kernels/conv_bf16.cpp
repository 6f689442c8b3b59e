// What an output pixel reads is copied into one row, some hundred pixels at a time, which are then multiplied with the
// weights as a linear's. The copies stay in the second-level cache and are read once for every panel of outputs.
#include "conv_bf16.h"

#include "bf16_product.h"
#include "linear_bf16.h"
#include "parallel.h"
#include "transpose_copy.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kCopyBytes = 512 << 10;  // of copied rows at a time
constexpr int64_t kFewestRows = 64;
constexpr int64_t kSpace = 32;  // between copied rows: powers of two apart they would evict each other

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

void next(const ConvArgs& g, Position& at) {
  if (++at.w < g.out[2]) return;
  at.w = 0;
  if (++at.h < g.out[1]) return;
  at.h = 0;
  if (++at.d < g.out[0]) return;
  at.d = 0;
  ++at.image;
}

// The taps of one row of x: kernel[2] pixels of cg channels each, from column `left` on; what lies outside is zero.
void copy_taps(const ConvArgs& g, const Plan& p, const bf16* line, int64_t left, bf16* to) {
  const int64_t taps = g.kernel[2], dilation = g.dilation[2];
  const size_t bytes = static_cast<size_t>(p.cg) * sizeof(bf16);
  // Taps side by side are one piece of memory.
  if (dilation == 1 && g.groups == 1 && left >= 0 && left + taps <= g.in[2]) {
    std::memcpy(to, line + left * g.c, static_cast<size_t>(taps) * bytes);
    return;
  }
  for (int64_t t = 0; t < taps; ++t, to += p.cg) {
    const int64_t column = left + t * dilation;
    if (column >= 0 && column < g.in[2]) {
      std::memcpy(to, line + column * g.c, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

// What the output at `at` reads of a group, and zeros up to whole steps.
void copy_pixel(const ConvArgs& g, const Plan& p, const bf16* x, const Position& at, bf16* to) {
  const int64_t image = at.image * g.in[0] * g.in[1] * g.in[2] * g.c, row = p.cg * g.kernel[2];
  const int64_t left = at.w * g.stride[2] - g.padding[2];
  bf16* const end = to + p.stride - kSpace;
  for (int64_t i = 0; i < g.kernel[0]; ++i) {
    const int64_t d = at.d * g.stride[0] - g.padding[0] + i * g.dilation[0];
    for (int64_t j = 0; j < g.kernel[1]; ++j, to += row) {
      const int64_t h = at.h * g.stride[1] - g.padding[1] + j * g.dilation[1];
      if (d >= 0 && d < g.in[0] && h >= 0 && h < g.in[1]) {
        copy_taps(g, p, x + image + (d * g.in[1] + h) * g.in[2] * g.c, left, to);
      } else {
        std::memset(to, 0, static_cast<size_t>(row) * sizeof(bf16));
      }
    }
  }
  if (to < end) std::memset(to, 0, static_cast<size_t>(end - to) * sizeof(bf16));
}

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
    for (int64_t row = rows.begin; row < rows.end; row += p.rows) {
      a.m = min64(p.rows, rows.end - row);
      Position at = position_of(g, row);
      for (int64_t r = 0; r < a.m; ++r, next(g, at)) copy_pixel(g, p, x + group * p.cg, at, copies + r * p.stride);
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
