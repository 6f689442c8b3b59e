// Where windows lie a pixel apart, an image with its padding is a matrix of overlapping rows, one for each of its
// pixels: a linear over all of them computes the outputs, and a few sums more at the ends of lines, which are not
// written. So the input is copied once, instead of once for every tap.
#include "conv_bf16_tiles.h"

#include "bf16_product.h"
#include "conv_bf16_source.h"
#include "linear_bf16_tiles.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kNearBytes = 32 << 10;  // of a tile's windows, that stay in the first-level cache
constexpr double kMostTiles = 1.5;        // as many as outputs alone would fill

struct Plan {
  bool copy;
  int64_t size[3];         // of the source, in pixels
  int64_t run, k, panels;  // elements that lie together in a window; of all
  int64_t together;        // runs
  int64_t rows, tiles;     // of an image
};

Plan plan(const ConvArgs& g) {
  Plan p = {};
  for (int d = 0; d < 3; ++d) {
    p.size[d] = g.out[d] + (g.kernel[d] - 1) * g.dilation[d];
    p.copy = p.copy || g.padding[d] != 0 || p.size[d] > g.in[d];
  }
  for (int d = 0; d < 3 && !p.copy; ++d) p.size[d] = g.in[d];
  p.run = (g.dilation[2] == 1 ? g.kernel[2] : 1) * g.c;
  p.k = g.kernel[1] * g.kernel[2] * g.c;
  p.panels = ceil_div(g.oc, kPanel);
  const int64_t near = (kBf16Tile * g.c + p.run) * static_cast<int64_t>(sizeof(bf16));
  p.together = max64(1, min64(kNearBytes / max64(near, 1), p.k / max64(p.run, 1)));
  p.rows = (g.out[1] - 1) * p.size[2] + g.out[2];
  p.tiles = ceil_div(p.rows, kBf16Tile);
  return p;
}

struct Buffers {
  bf16* source;
  int64_t* offsets;
  size_t bytes;
};

Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b = {};
  b.source = p.copy ? from.take<bf16>(g.n * p.size[1] * p.size[2] * g.c) : nullptr;
  b.offsets = from.take<int64_t>(p.k / p.run);
  b.bytes = from.bytes();
  return b;
}

void run_offsets(const ConvArgs& g, const Plan& p, int64_t* offsets) {
  const int64_t columns = p.k / p.run / g.kernel[1];
  for (int64_t j = 0; j < g.kernel[1]; ++j) {
    for (int64_t t = 0; t < columns; ++t) {
      *offsets++ = (j * g.dilation[1] * p.size[2] + t * g.dilation[2]) * g.c;
    }
  }
}

// Tiles of all images, one after the other, and panels.
void part(const ConvArgs& g, const Plan& p, const bf16* source, const Bf16Windows& windows, const Rectangle& mine) {
  LinearArgs a = {};
  a.dtype = g.dtype;
  a.n = g.oc;
  a.k = p.k;
  a.x_stride = g.c;
  a.w_packed = g.w_packed;
  a.bias = g.bias;
  a.residual_stride = a.y_stride = g.oc;
  a.act = g.act;
  for (int64_t image = mine.rows.begin / p.tiles; image * p.tiles < mine.rows.end; ++image) {
    const int64_t first = max64(mine.rows.begin - image * p.tiles, 0) * kBf16Tile;
    const int64_t last = min64(min64(mine.rows.end - image * p.tiles, p.tiles) * kBf16Tile, p.rows);
    const int64_t output = image * g.out[1] * g.out[2] * g.oc;
    a.m = last;
    a.x = source + image * p.size[1] * p.size[2] * g.c;
    a.residual = advance(g.residual, output, g.dtype);
    a.y = advance(g.y, output, g.dtype);
    linear_bf16_tiles(a, g.dtype, {first, last}, mine.columns, true, &windows);
  }
}

}  // namespace

bool takes_bf16_tiles(const ConvArgs& g) {
  if (kBf16Rows <= 16 || g.transposed || g.planar || g.groups != 1) return false;
  if (g.n <= 0 || g.c <= 0 || g.out[1] <= 0 || g.out[2] <= 0) return false;
  if (g.in[0] != 1 || g.out[0] != 1 || g.kernel[0] != 1 || g.padding[0] != 0) return false;
  if (g.kernel[1] * g.kernel[2] <= 1 || g.stride[1] != 1 || g.stride[2] != 1) return false;
  const Plan p = plan(g);
  if (p.run % kBf16Step != 0 || p.run * p.together > kMostWindowRun) return false;
  return static_cast<double>(g.n * p.tiles) <=
         kMostTiles * static_cast<double>(ceil_div(g.n * g.out[1] * g.out[2], kBf16Tile));
}

size_t conv_bf16_tiles_scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  return carve(g, plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv_bf16_tiles(const ConvArgs& g) {
  const Plan p = plan(g);
  const Buffers buffers = carve(g, p, g.scratch);
  const double depth = static_cast<double>(p.k), rows = static_cast<double>(g.n * p.rows);
  const int worth = worth_threads(2.0 * rows * static_cast<double>(g.oc) * depth / kBf16Speed, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  run_offsets(g, p, buffers.offsets);
  const Bf16Windows windows = {p.run, p.together, buffers.offsets, p.size[2], g.out[2]};
  parallel(threads, [&](int thread, int count) {
    const bf16* source = static_cast<const bf16*>(g.x);
    if (p.copy) {
      copy_with_padding(g, p.size, g.c, buffers.source, share(g.n * p.size[1], thread, count));
      team_barrier(count);
      source = buffers.source;
    }
    const Rectangle mine = turned_grid(g.knobs, kConvGrid, g.n * p.tiles, p.panels,
                                       2.0 * static_cast<double>(g.c * kBf16Tile), 2.0 * depth * kPanel, thread, count);
    if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) part(g, p, source, windows, mine);
  });
}

}  // namespace aotpack::kernels
