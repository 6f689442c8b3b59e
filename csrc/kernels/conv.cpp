// Indirect convolution (M. Dukhan, "The Indirect Convolution Algorithm"): a tile of output pixels is multiplied
// straight from the input through row pointers, one per pixel and tap; no im2col. Out-of-range taps point to a row of
// zeros.
#include "conv.h"

#include <cstring>
#include <utility>

#include "caches.h"
#include "conv_bf16.h"
#include "conv_depthwise.h"
#include "conv_grouped.h"
#include "conv_phase.h"
#include "conv_winograd.h"
#include "epilogue.h"
#include "linear.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kPanelBytes = 512 << 10;  // of weights used together, so that they stay in the second-level cache
constexpr std::array<int64_t, 4> kTurnedPanelBytes = {128 << 10, 256 << 10, 1024 << 10, 2048 << 10};
constexpr int64_t kMaxPanels = 16;
constexpr int64_t kStagePad = 16;      // floats between staged rows, so that they fall into different cache sets
constexpr int64_t kThinChannels = 16;  // up to here a padded copy of x pays for itself with longer rows

// Where x is read from, and how. Along the width either each tap is a row of cg channels, or (merged) all kernel
// columns are one row of kernel * c channels, which then lie next to each other.
struct Source {
  bool linear;     // a plain matrix product
  bool merged;     // no groups, no dilation along the width
  bool copy;       // x is brought into scratch as floats, the width padded when merged
  int64_t width;   // pixels in a row of the source
  int64_t k;       // floats of one tap
  int64_t w_taps;  // taps along the width
  int64_t left;    // padding to the left that the copy contains
  bool staged;     // the rows of a tile are copied before use
};

int64_t spatial(const int64_t size[3]) { return size[0] * size[1] * size[2]; }

Source plan(const ConvArgs& g) {
  Source s = {};
  s.width = g.in[2];
  s.k = g.c / max64(g.groups, 1);
  s.w_taps = g.kernel[2];
  s.linear = g.groups == 1;
  for (int d = 0; d < 3; ++d) {
    s.linear = s.linear && g.kernel[d] == 1 && g.stride[d] == 1 && g.padding[d] == 0 && g.in[d] == g.out[d];
  }
  if (s.linear) return s;
  // Pixels a multiple of a page apart, as under a stride, evict each other from the nearest cache.
  const bool is_single = !g.transposed && g.kernel[0] * g.kernel[1] * g.kernel[2] == 1;
  s.staged = is_single && g.dtype == DType::f32 && s.k >= 256 && g.stride[2] * pixel_step(g) * 4 % 4096 == 0;
  const bool widen = g.dtype != DType::f32;
  s.copy = widen;
  if (!g.transposed && g.groups == 1 && g.kernel[2] > 1 && g.dilation[2] == 1 && g.out[2] > 0) {
    const int64_t reach = (g.out[2] - 1) * g.stride[2] + g.kernel[2];
    const bool inside = g.padding[2] == 0 && reach <= g.in[2], dense = pixel_step(g) == g.c;
    if ((inside && dense) || g.c <= kThinChannels) {
      s.merged = true;
      s.copy = widen || !inside || g.planar || !dense;
      s.left = g.padding[2];
      s.width = inside ? g.in[2] : max64(g.padding[2] + g.in[2], reach);
      s.k = g.kernel[2] * g.c;
      s.w_taps = 1;
    }
  }
  return s;
}

struct Buffers {
  float* source;
  float* zeros;
  const float** pointers;  // of two tiles
  int64_t* offsets;
  float* staged;
  int64_t staged_each;
  size_t bytes;
};

Buffers carve(const ConvArgs& g, const Source& s, void* scratch) {
  const int64_t taps = g.kernel[0] * g.kernel[1] * s.w_taps;
  const int64_t threads = max64(g.num_threads, 1);
  Scratch from(scratch);
  Buffers b;
  b.source = s.copy ? from.take<float>(g.n * g.in[0] * g.in[1] * s.width * g.c) : nullptr;
  b.zeros = from.take<float>(s.k);
  b.pointers = from.take<const float*>(threads * 2 * taps * kMaxRows);
  b.offsets = from.take<int64_t>(threads * taps);
  b.staged_each = s.staged ? kMaxRows * (s.k + kStagePad) : 0;
  b.staged = from.take<float>(threads * b.staged_each);
  b.bytes = from.bytes();
  return b;
}

// Elements of the planes of an image at the same places, from there on, side by side.
template <int kChannels>
void interleave(const float* const* planes, int64_t channels, int64_t count, float* to) {
  const int64_t c = kChannels > 0 ? kChannels : channels;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < c; ++j) to[i * c + j] = planes[j][i];
  }
}

// One row of x, which is planar: `count` pixels of which `at` is the first.
void gather_planes(const ConvArgs& g, int64_t at, int64_t plane, int64_t count, float* to) {
  constexpr int64_t kPiece = 64;
  alignas(64) float pieces[kThinChannels][kPiece];
  const float* planes[kThinChannels];
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t some = min64(kPiece, count - i);
    for (int64_t j = 0; j < g.c; ++j) {
      const void* from = advance(g.x, at + j * plane + i, g.dtype);
      planes[j] = static_cast<const float*>(from);
      if (g.dtype == DType::f32) continue;
      widen(from, g.dtype, some, pieces[j]);
      planes[j] = pieces[j];
    }
    float* const out = to + i * g.c;
    if (g.c == 3) {
      interleave<3>(planes, 3, some, out);
    } else {
      interleave<0>(planes, g.c, some, out);
    }
  }
}

void copy_source(const ConvArgs& g, const Source& s, float* to, int thread, int threads) {
  const int64_t row = g.in[2] * g.c, left = s.left * g.c, padded = s.width * g.c;
  const Range mine = share(g.n * g.in[0] * g.in[1], thread, threads);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    float* at = to + r * padded;
    for (int64_t i = 0; i < left; ++i) at[i] = 0.0f;
    if (g.planar) {
      const int64_t rows = g.in[0] * g.in[1], plane = rows * g.in[2];
      gather_planes(g, r / rows * g.c * plane + r % rows * g.in[2], plane, g.in[2], at + left);
    } else {
      widen(advance(g.x, r * row, g.dtype), g.dtype, row, at + left);
    }
    for (int64_t i = left + row; i < padded; ++i) at[i] = 0.0f;
  }
}

struct Job {
  const ConvArgs& g;
  const Source& s;
  const float* source;
  int64_t pixel;  // floats from one pixel of the source to the next
  const float* zeros;
  Phase phase[3];
  int64_t taps;
  const int64_t* offsets;  // of the taps in a panel; null: all taps in order
  float* staged;           // null: rows are used where they lie
  bool asks, streams;      // memory ahead of time; y past the caches
};

// rows[t * count + r] for pixels [r, r + run) of a tile of `count`, which lie next to each other in one output row, the
// first at depth d0, height h0 and width w0 of the input (before the taps are added).
void point_run(const Job& job, const float* base, int64_t d0, int64_t h0, int64_t w0, int64_t run, int count,
               const float** to) {
  const ConvArgs& g = job.g;
  const Phase &d = job.phase[0], &h = job.phase[1], &w = job.phase[2];
  const int64_t width = job.s.width, pixel = job.pixel, step = w.stride * pixel;
  for (int64_t i = 0; i < d.taps; ++i) {
    const int64_t id = d0 + i * d.offset_step;
    for (int64_t j = 0; j < h.taps; ++j) {
      const int64_t ih = h0 + j * h.offset_step;
      const bool inside = id >= 0 && id < g.in[0] && ih >= 0 && ih < g.in[1];
      const float* const line = base + (inside ? (id * g.in[1] + ih) * width * pixel : 0);
      for (int64_t t = 0; t < w.taps; ++t, to += count) {
        const int64_t iw = w0 + t * w.offset_step;
        if (inside && iw >= 0 && iw + (run - 1) * w.stride < width) {
          const float* at = line + iw * pixel;
          for (int64_t r = 0; r < run; ++r, at += step) to[r] = at;
        } else {
          for (int64_t r = 0; r < run; ++r) {
            const int64_t x = iw + r * w.stride;
            to[r] = inside && x >= 0 && x < width ? line + x * pixel : job.zeros;
          }
        }
      }
    }
  }
}

// Where a pixel of a phase lies: counted on from one to the next, as divisions take longer than a small tile.
struct Position {
  int64_t image, d, h, w;
};

Position position_of(const Job& job, int64_t pixel) {
  const Phase &d = job.phase[0], &h = job.phase[1], &w = job.phase[2];
  const int64_t row = pixel / w.count, slice = row / h.count;
  return {slice / d.count, slice % d.count, row % h.count, pixel % w.count};
}

// rows[t * count + r] for `count` pixels of the phase from `at` on, reading channels from `channel` on. Moves `at`
// behind them.
void point(const Job& job, Position& at, int count, int64_t channel, const float** rows) {
  const ConvArgs& g = job.g;
  const Phase &d = job.phase[0], &h = job.phase[1], &w = job.phase[2];
  for (int64_t r = 0; r < count;) {
    const int64_t run = min64(count - r, w.count - at.w);
    const float* const base = job.source + at.image * g.in[0] * g.in[1] * job.s.width * job.pixel + channel;
    point_run(job, base, at.d * d.stride + d.offset0, at.h * h.stride + h.offset0, at.w * w.stride + w.offset0, run,
              count, rows + r);
    r += run;
    at.w += run;
    if (at.w < w.count) break;
    at.w = 0;
    if (++at.h == h.count) {
      at.h = 0;
      if (++at.d == d.count) {
        at.d = 0;
        ++at.image;
      }
    }
  }
}

// Pixels are taken in lines along which y is evenly spaced: the whole output for a plain convolution, a row of a phase
// otherwise.
struct Tiling {
  int64_t lines, length, pieces;
};
Tiling tiling(const ConvArgs& g, const Phase phase[3]) {
  const int64_t rows = g.n * phase[0].count * phase[1].count;
  const bool dense = phase[0].step == 1 && phase[1].step == 1 && phase[2].step == 1;
  const int64_t lines = dense ? 1 : rows, length = dense ? rows * phase[2].count : phase[2].count;
  return {lines, length, row_tiles(length)};
}

int64_t output_pixel(const Job& job, const Position& at) {
  const Phase &d = job.phase[0], &h = job.phase[1], &w = job.phase[2];
  const int64_t od = d.first + at.d * d.step, oh = h.first + at.h * h.step, ow = w.first + at.w * w.step;
  return ((at.image * job.g.out[0] + od) * job.g.out[1] + oh) * job.g.out[2] + ow;
}

// Some pixels of y that are computed together.
struct Tile {
  int count;
  const float** rows;  // [taps][count]
  int64_t y;           // where the first is in y
};

// What the tile that comes next needs: a part of the rows of its last tap, which are those that tiles before it have
// not read, and what is there of y and the residual.
int look_ahead(const Job& job, const Tile& next, int64_t column, int64_t columns, Range part, Ahead* to) {
  const ConvArgs& g = job.g;
  if (next.count == 0) return 0;
  int count = 0;
  const int64_t at = next.y + column, stride = g.oc * job.phase[2].step * 4;
  const auto add = [&](const void* base) {
    to[count++] = {static_cast<const char*>(base) + at * 4, columns * 4, stride, next.count};
  };
  if (g.residual != nullptr) add(g.residual);
  if (!job.streams) add(g.y);
  if (part.begin == part.end || job.taps == 0) return count;
  const float* const* const rows = next.rows + (job.taps - 1) * next.count;
  for (int r = 0; r < next.count;) {
    Ahead run = {reinterpret_cast<const char*>(rows[r] + part.begin), (part.end - part.begin) * 4, 0, 1};
    if (r + 1 < next.count) run.stride = reinterpret_cast<const char*>(rows[r + 1] + part.begin) - run.at;
    for (++r; r < next.count && reinterpret_cast<const char*>(rows[r] + part.begin) == run.at + run.rows * run.stride;
         ++r) {
      ++run.rows;
    }
    to[count++] = run;
  }
  return count;
}

// Copies the rows of a tile of one tap, and points to them there.
void stage(const Job& job, const Tile& tile) {
  for (int r = 0; r < tile.count; ++r) {
    float* const to = job.staged + r * (job.s.k + kStagePad);
    std::memcpy(to, tile.rows[r], static_cast<size_t>(job.s.k) * sizeof(float));
    tile.rows[r] = to;
  }
}

void rectangle(const Job& job, const Tiling& tiles, Range tile_range, Range panel_range, const float** pointers) {
  const ConvArgs& g = job.g;
  const int64_t cg = g.c / g.groups, og = g.oc / g.groups, panels_per_group = ceil_div(og, kPanel);
  const int64_t panel_size = spatial(g.kernel) * cg * kPanel;
  const int64_t at_once =
      max64(1, min64(kMaxPanels, turned(g.knobs, kConvBytes, kTurnedPanelBytes, near_bytes(kPanelBytes)) /
                                     max64(1, panel_size * static_cast<int64_t>(dtype_size(g.dtype)))));
  alignas(64) float bias[kMaxPanels][kPanel];
  // As `share` cuts a line: the first pieces are longer by one.
  const int64_t pixels_each = tiles.length / tiles.pieces, longer = tiles.length % tiles.pieces;
  const int64_t first_piece = tile_range.begin % tiles.pieces;
  const Position first = position_of(
      job, tile_range.begin / tiles.pieces * tiles.length + share(tiles.length, first_piece, tiles.pieces).begin);
  int64_t group_end = 0;
  for (int64_t panel = panel_range.begin; panel < panel_range.end; panel = group_end) {
    const int64_t group = panel / panels_per_group;
    group_end = min64(min64(panel + at_once, panel_range.end), (group + 1) * panels_per_group);
    const auto column_of = [&](int64_t p) { return (p - group * panels_per_group) * kPanel; };
    for (int64_t p = panel; p < group_end; ++p) {
      panel_bias(advance(g.bias, group * og + column_of(p), g.dtype), g.dtype, og - column_of(p), bias[p - panel]);
    }
    Position position = first;
    int64_t piece = first_piece;
    const auto next_tile = [&](const float** rows) {
      Tile t = {static_cast<int>(pixels_each + (piece < longer ? 1 : 0)), rows, 0};
      if (++piece == tiles.pieces) piece = 0;
      t.y = output_pixel(job, position) * g.oc + group * og;
      point(job, position, t.count, group * cg, rows);
      return t;
    };
    Tile tile = next_tile(pointers), next = {0, pointers + job.taps * kMaxRows, 0};
    for (int64_t index = tile_range.begin; index < tile_range.end; ++index) {
      next = index + 1 < tile_range.end ? next_tile(next.rows) : Tile{0, next.rows, 0};
      if (job.staged != nullptr) stage(job, tile);
      for (int64_t p = panel; p < group_end; ++p) {
        Ahead ahead[kMaxRows + 2];
        MicroArgs m = {};
        m.rows = tile.rows;
        m.row_step = job.staged != nullptr ? job.s.k + kStagePad : 0;
        m.taps = job.taps;
        m.k = job.s.k;
        m.b = advance(g.w_packed, p * panel_size, g.dtype);
        m.b_stride = kPanel;
        m.b_offsets = job.offsets;
        m.init = bias[p - panel];
        m.columns = static_cast<int>(min64(kPanel, og - column_of(p)));
        m.stream = job.streams;
        m.ahead = ahead;
        if (job.asks) {
          const Range part = share(m.k, p - panel, group_end - panel);
          m.ahead_count = look_ahead(job, next, column_of(p), m.columns, part, ahead);
        }
        const int64_t at = tile.y + column_of(p), stride = g.oc * job.phase[2].step;
        micro_finish(g.dtype, tile.count, m, g.dtype, advance(g.residual, at, g.dtype), stride, g.act,
                     advance(g.y, at, g.dtype), stride);
      }
      std::swap(tile, next);
    }
  }
  if (job.streams) end_of_streams();
}

// Where the taps of a phase lie in a panel.
void tap_offsets(const ConvArgs& g, const Source& s, const Phase phase[3], int64_t* offsets) {
  const int64_t row = (g.c / g.groups) * kPanel;
  for (int64_t i = 0; i < phase[0].taps; ++i) {
    for (int64_t j = 0; j < phase[1].taps; ++j) {
      const int64_t kd = phase[0].kernel0 + i * phase[0].kernel_step, kh = phase[1].kernel0 + j * phase[1].kernel_step;
      for (int64_t t = 0; t < phase[2].taps; ++t) {
        const int64_t kw = s.merged ? 0 : phase[2].kernel0 + t * phase[2].kernel_step;
        *offsets++ = ((kd * g.kernel[1] + kh) * g.kernel[2] + kw) * row;
      }
    }
  }
}

ConvLayout layout_of(const ConvArgs& g) {
  const int64_t groups = max64(g.groups, 1);
  return conv_layout(groups, g.c / groups, g.oc / groups, g.transposed);
}

LinearArgs as_linear(const ConvArgs& g) {
  return {g.dtype, g.n * spatial(g.in), g.oc, g.c,   g.x, pixel_step(g), g.w_packed,
          g.bias,  g.residual,          g.oc, g.act, g.y, g.oc,          g.num_threads,
          g.knobs};
}

}  // namespace

bool takes_winograd(const ConvArgs& g) {
  bool takes = g.dtype == DType::f32 && g.groups == 1 && !g.transposed && g.in[0] == 1 && g.padding[0] == 0;
  for (int d = 0; d < 3; ++d) {
    takes = takes && g.kernel[d] == (d == 0 ? 1 : 3) && g.stride[d] == 1 && g.dilation[d] == 1;
  }
  return takes;
}

bool takes_planar(const ConvArgs& g) {
  return g.c <= kThinChannels && g.winograd == Winograd::none && layout_of(g) == ConvLayout::panels && plan(g).merged;
}

bool takes_strided(const ConvArgs& g) {
  if (g.winograd != Winograd::none) return true;
  const ConvLayout layout = layout_of(g);
  if (layout != ConvLayout::panels) return layout == ConvLayout::depthwise;
  ConvArgs strided = g;
  strided.x_pixel = g.c + 1;
  const Source s = plan(strided);
  return s.linear || (g.dtype == DType::f32 && !s.copy);
}

KnobSizes conv_knobs(const ConvArgs& g) {
  if (g.groups <= 0) return {};
  if (g.winograd == Winograd::none) {
    if (layout_of(g) != ConvLayout::panels) return {};
    if (plan(g).linear) return linear_knobs(as_linear(g));
  }
  const bool is_shared = g.num_threads > 1;
  return {static_cast<uint8_t>(kTurnedPanelBytes.size() + 1), is_shared ? kGridPositions : uint8_t{1},
          is_shared ? kThreadPositions : uint8_t{1}};
}

size_t conv_scratch_bytes(const ConvArgs& g) {
  if (g.winograd != Winograd::none) return conv_winograd_scratch_bytes(g);
  const ConvLayout layout = layout_of(g);
  if (layout == ConvLayout::depthwise) return conv_depthwise_scratch_bytes(g);
  if (layout == ConvLayout::grouped) return conv_grouped_scratch_bytes(g);
  const Source s = plan(g);
  if (!s.linear && takes_bf16(g)) return conv_bf16_scratch_bytes(g);
  ConvArgs counted = g;
  // Counting needs an address; it is not touched.
  return s.linear ? 0 : carve(counted, s, reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv(const ConvArgs& g) {
  const int64_t pixels = g.n * spatial(g.out);
  if (pixels <= 0 || g.oc <= 0 || g.groups <= 0) return;
  if (g.winograd != Winograd::none) return conv_winograd(g);
  const ConvLayout layout = layout_of(g);
  if (layout == ConvLayout::depthwise) return conv_depthwise(g);
  if (layout == ConvLayout::grouped) return conv_grouped(g);
  const Source s = plan(g);
  if (s.linear) return linear(as_linear(g));
  if (takes_bf16(g)) return conv_bf16(g);
  const Buffers buffers = carve(g, s, g.scratch);
  const int64_t all_taps = g.kernel[0] * g.kernel[1] * s.w_taps;
  const int64_t panels = g.groups * ceil_div(g.oc / g.groups, kPanel);
  for (int64_t i = 0; i < s.k; ++i) buffers.zeros[i] = 0.0f;

  const double terms = static_cast<double>(all_taps) * static_cast<double>(s.k);
  const double flops = 2.0 * terms * static_cast<double>(pixels) * static_cast<double>(panels * kPanel);
  const int64_t phase_count = phases(g, 0) * phases(g, 1) * phases(g, 2);
  const int worth = worth_threads(flops / static_cast<double>(phase_count) / 200e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  if (s.copy) {
    parallel(threads, [&](int thread, int count) { copy_source(g, s, buffers.source, thread, count); });
  }
  const double row_bytes = 4.0 * static_cast<double>(g.c * g.stride[1] * g.stride[2]) * kMaxRows;
  const double column_bytes = 4.0 * terms * kPanel;
  const int64_t og = g.oc / g.groups, x_size = g.n * spatial(g.in) * g.c, y_size = pixels * g.oc;
  const bool asks = g.dtype == DType::f32 && max64(x_size, y_size) * 4 >= kAheadBytes;
  const bool is_streamed = g.dtype == DType::f32 && og % kWidth == 0 && streams(g.y, g.oc, y_size, g.act);
  const double piece_row_bytes = (s.staged ? kStagedReads : 1.0) * row_bytes;
  Pieces pieces(threads, phase_count == 1 ? flops / 100e3 : 0.0);
  parallel(threads, [&](int thread, int count) {
    const float** pointers = buffers.pointers + thread * 2 * all_taps * kMaxRows;
    int64_t* offsets = buffers.offsets + thread * all_taps;
    float* const staged = s.staged ? buffers.staged + thread * buffers.staged_each : nullptr;
    pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) {
      for (int64_t index = 0; index < phase_count; ++index) {
        Job job = {
            g,    s,          static_cast<const float*>(g.x), pixel_step(g), buffers.zeros, {}, 0, nullptr, staged,
            asks, is_streamed};
        if (s.copy) {
          job.source = buffers.source;
          job.pixel = g.c;
        }
        job.phase[0] = phase_of(g, 0, index / (phases(g, 1) * phases(g, 2)));
        job.phase[1] = phase_of(g, 1, index / phases(g, 2) % phases(g, 1));
        job.phase[2] = phase_of(g, 2, index % phases(g, 2));
        if (s.merged) {
          job.phase[2].taps = 1;
          job.phase[2].offset0 += s.left;
        }
        if (job.phase[0].count * job.phase[1].count * job.phase[2].count == 0) continue;
        job.taps = job.phase[0].taps * job.phase[1].taps * job.phase[2].taps;
        if (g.transposed) {
          tap_offsets(g, s, job.phase, offsets);
          job.offsets = offsets;
        }
        const Tiling tiles = tiling(g, job.phase);
        const Rectangle all =
            turned_grid(g.knobs, kConvGrid, tiles.lines * tiles.pieces, panels, row_bytes, column_bytes, part, count);
        const Rectangle mine = piece_of(all, piece, of, piece_row_bytes, column_bytes);
        if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) {
          rectangle(job, tiles, mine.rows, mine.columns, pointers);
        }
      }
    });
  });
}

}  // namespace aotpack::kernels
