// A tile is some output pixels that lie side by side in one row, or two whole short rows. For each tap, what they read
// are rows of channels a fixed step apart, so that a product needs one offset per tap and no copies of windows. The
// input is copied once with its padding, unless it has none.
#include "conv_bf16_direct.h"

#include <limits>

#include "bf16_copy.h"
#include "bf16_epilogue.h"
#include "bf16_product.h"
#include "conv_bf16_source.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kLeastRun = 32;     // channels that a tap reads together
constexpr int64_t kMostDepth = 6144;  // of a panel, which has to stay in the second-level cache
constexpr int64_t kLeastColumns = 4;  // of the output
constexpr int64_t kPixelPad = 32;

struct Plan {
  int64_t cg, og, k, panels;  // of a group
  bool copy;
  int64_t size[3];   // of the source, in pixels
  int64_t pixel;     // elements from one pixel of the source to the next
  int64_t run;       // elements that are read together
  int64_t segments;  // runs of a window
  int64_t lines;     // rows of the output in a tile
  int64_t pieces;    // tiles in `lines` rows
  int64_t groups_of_lines, tiles;
};

Plan plan(const ConvArgs& g) {
  Plan p = {};
  p.cg = g.c / g.groups;
  p.og = g.oc / g.groups;
  p.k = g.kernel[0] * g.kernel[1] * g.kernel[2] * p.cg;
  p.panels = ceil_div(p.og, kPanel);
  // Pixels that far apart evict each other from the first-level cache.
  const bool aliases = g.stride[2] * g.c * 2 % 2048 == 0;
  p.copy = aliases;
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = (g.out[d] - 1) * g.stride[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
    p.copy = p.copy || g.padding[d] != 0 || reach > g.in[d];
    p.size[d] = reach;
  }
  for (int d = 0; d < 3 && !p.copy; ++d) p.size[d] = g.in[d];
  p.pixel = g.c + (aliases ? kPixelPad : 0);
  const bool merged = g.groups == 1 && g.dilation[2] == 1 && !aliases;
  p.run = merged ? p.cg * g.kernel[2] : p.cg;
  p.segments = p.k / max64(p.run, 1);
  p.lines = 2 * g.out[2] <= kBf16Tile ? 2 : 1;
  p.pieces = p.lines == 2 ? 1 : ceil_div(g.out[2], kBf16Tile);
  p.groups_of_lines = ceil_div(g.out[1], p.lines);
  p.tiles = g.n * g.out[0] * p.groups_of_lines * p.pieces;
  return p;
}

struct Buffers {
  bf16* source;
  bf16* paired;  // a panel for each thread
  int64_t* offsets;
  int64_t paired_each;
  size_t bytes;
};

Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b = {};
  b.source = p.copy ? from.take<bf16>(g.n * p.size[0] * p.size[1] * p.size[2] * p.pixel) : nullptr;
  b.paired_each = p.k * kPanel;
  b.paired = from.take<bf16>(b.paired_each * max64(g.num_threads, 1));
  b.offsets = from.take<int64_t>(p.segments);
  b.bytes = from.bytes();
  return b;
}

void tap_offsets(const ConvArgs& g, const Plan& p, int64_t* offsets) {
  const int64_t columns = p.run / p.cg > 1 ? 1 : g.kernel[2];
  for (int64_t i = 0; i < g.kernel[0]; ++i) {
    for (int64_t j = 0; j < g.kernel[1]; ++j) {
      for (int64_t t = 0; t < columns; ++t) {
        const int64_t row = i * g.dilation[0] * p.size[1] + j * g.dilation[1];
        *offsets++ = (row * p.size[2] + t * g.dilation[2]) * p.pixel;
      }
    }
  }
}

struct Tile {
  int count;
  int64_t from, y;  // of the first pixel: its window in the source, in elements, and its place in y, in pixels
};

Tile tile_at(const ConvArgs& g, const Plan& p, int64_t tile) {
  const int64_t lines = tile / p.pieces, slice = lines / p.groups_of_lines;
  const int64_t h = lines % p.groups_of_lines * p.lines, d = slice % g.out[0], image = slice / g.out[0];
  const Range columns = share(g.out[2], tile % p.pieces, p.pieces);
  const int64_t row = (image * p.size[0] + d * g.stride[0]) * p.size[1] + h * g.stride[1];
  Tile t = {static_cast<int>(columns.end - columns.begin), 0, 0};
  if (p.lines == 2 && h + 1 < g.out[1]) t.count *= 2;
  t.from = (row * p.size[2] + columns.begin * g.stride[2]) * p.pixel;
  t.y = ((image * g.out[0] + d) * g.out[1] + h) * g.out[2] + columns.begin;
  return t;
}

void rectangle(const ConvArgs& g, const Plan& p, const bf16* source, const int64_t* offsets, bf16* paired,
               const Rectangle& mine) {
  const bool clamp = g.act == Act::relu || g.act == Act::relu6;
  const bool in_registers = clamp || g.act == Act::none;
  Bf16Finish finish = {};
  finish.residual_stride = finish.y_stride = g.oc;
  finish.clamp = clamp;
  finish.high = g.act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity();
  alignas(64) float bias[kPanel], sums[kBf16Tile * kPanel];
  Bf16Unit unit;
  for (int64_t panel = mine.columns.begin; panel < mine.columns.end; ++panel) {
    const int64_t group = panel / p.panels, first = panel % p.panels * kPanel, column = group * p.og + first;
    const int64_t columns = min64(kPanel, p.og - first);
    const auto* const w = static_cast<const bf16*>(g.w_packed) + panel * p.k * kPanel;
    split_bias(g.bias == nullptr ? nullptr : static_cast<const bf16*>(g.bias) + column, columns, bias);
    const bool finishes = in_registers && columns == kPanel;
    for (int64_t index = mine.rows.begin; index < mine.rows.end; ++index) {
      const Tile tile = tile_at(g, p, index);
      const void* const residual = advance(g.residual, tile.y * g.oc + column, g.dtype);
      void* const y = advance(g.y, tile.y * g.oc + column, g.dtype);
      Bf16Args a = {};
      a.rows = source + tile.from + group * p.cg;
      a.stride = g.stride[2] * p.pixel;
      if (p.lines == 2) a.gap = g.stride[1] * p.size[2] * p.pixel - g.out[2] * a.stride;
      if (tile.count <= g.out[2]) a.gap = 0;
      a.k = p.run;
      a.segments = p.segments;
      a.offsets = offsets;
      a.paired = paired;
      if (index == mine.rows.begin) {
        a.panel = w;
        a.paired_to = paired;
      }
      const int64_t asked = (index - mine.rows.begin) * (p.k / kBf16Step) * kBf16Ahead;
      if (panel + 1 < mine.columns.end && asked < p.k * kPanel) a.ahead = w + p.k * kPanel + asked;
      a.init = bias;
      a.sums = sums;
      a.sums_stride = kPanel;
      if (finishes) {
        finish.residual = static_cast<const bf16*>(residual);
        finish.y = static_cast<bf16*>(y);
        a.finish = &finish;
      }
      unit.multiply(tile.count, a);
      if (!finishes) {
        finish_split(sums, tile.count, columns, static_cast<const bf16*>(residual), g.oc, g.act, g.dtype, y, g.oc);
      }
    }
  }
}

}  // namespace

bool takes_bf16_direct(const ConvArgs& g) {
  if (!kBf16Fuses || g.transposed || g.planar || g.groups <= 0) return false;
  if (g.n <= 0 || g.out[0] <= 0 || g.out[1] <= 0 || g.out[2] < kLeastColumns) return false;
  const Plan p = plan(g);
  const bool is_single = g.kernel[0] * g.kernel[1] * g.kernel[2] == 1;
  return !is_single && p.run % kBf16Step == 0 && p.run >= kLeastRun && p.k <= kMostDepth;
}

size_t conv_bf16_direct_scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  return carve(g, plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv_bf16_direct(const ConvArgs& g) {
  const Plan p = plan(g);
  const Buffers buffers = carve(g, p, g.scratch);
  const double depth = static_cast<double>(p.k);
  const double pixels = static_cast<double>(g.n * g.out[0] * g.out[1] * g.out[2]);
  const int worth = worth_threads(2.0 * pixels * static_cast<double>(g.oc) * depth / kBf16Speed, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  tap_offsets(g, p, buffers.offsets);
  const double row_bytes = 2.0 * static_cast<double>(g.c * g.stride[1] * g.stride[2] * kBf16Tile);
  const double column_bytes = 2.0 * depth * kPanel;
  Pieces pieces(threads, 2.0 * pixels * static_cast<double>(g.oc) * depth / kBf16Speed);
  parallel(threads, [&](int thread, int count) {
    const bf16* source = static_cast<const bf16*>(g.x);
    if (p.copy) {
      copy_with_padding(g, p.size, p.pixel, buffers.source, share(g.n * p.size[0] * p.size[1], thread, count));
      team_barrier(count);
      source = buffers.source;
    }
    pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) {
      const Rectangle all =
          turned_grid(g.knobs, kConvGrid, p.tiles, g.groups * p.panels, row_bytes, column_bytes, part, count);
      const Rectangle mine = piece_of(all, piece, of, row_bytes, column_bytes);
      if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) {
        rectangle(g, p, source, buffers.offsets, buffers.paired + buffers.paired_each * thread, mine);
      }
    });
  });
}

}  // namespace aotpack::kernels
