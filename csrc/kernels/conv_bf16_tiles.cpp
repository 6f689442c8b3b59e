// The windows of an image with its padding are rows that overlap (tile_rows.h): a linear over them computes the
// outputs, and a few sums more at the ends of lines, which are not written. So the input is copied once, instead of
// once for every tap. What lies together in a window and is no whole steps is read with what follows it, by weights
// that have zeros there; so all of x has to be finite then. Where these sums would be too many, or x is not finite,
// what each output reads of a line is copied into a row of whole steps, once for all outputs that read it; lines that
// lie a window's step apart follow each other, so that these rows are a matrix.
#include "conv_bf16_tiles.h"

#include <atomic>
#include <cstring>

#include "bf16_copy.h"
#include "bf16_product.h"
#include "conv_bf16_source.h"
#include "linear_bf16_tiles.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kNearBytes = 32 << 10;  // of a tile's windows, that stay in the first-level cache
constexpr double kMostTiles = 1.5;        // as many as outputs alone would fill
constexpr double kMostSteps = 1.5;        // as many as windows without gaps would take
constexpr double kMostCopies = 0.6;       // of what copies of whole windows would be
constexpr int64_t kMostBytes = 4 << 20;   // of copied lines

struct Plan {
  bool copy, lines;        // with padding; what outputs read of each line
  bool beyond;             // what follows a run is read, too
  int64_t size[3];         // of the source, in pixels
  int64_t copied;          // elements of an image, copied
  int64_t run, k, panels;  // elements that lie together in a window; of all
  int64_t used;            // of a run
  int64_t together;        // runs
  TileRows rows;           // of an image, in elements
};

// Windows as they lie.
Plan plan_in_place(const ConvArgs& g) {
  Plan p = {};
  for (int d = 0; d < 3; ++d) {
    p.size[d] = (g.out[d] - 1) * g.stride[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
    p.copy = p.copy || g.padding[d] != 0 || p.size[d] > g.in[d];
  }
  for (int d = 0; d < 3 && !p.copy; ++d) p.size[d] = g.in[d];
  const int64_t taps = g.dilation[2] == 1 ? g.kernel[2] : 1;  // of a run
  p.used = taps * g.c;
  p.run = round_up(p.used, kBf16Step);
  p.k = g.kernel[1] * (g.kernel[2] / taps) * p.run;
  p.beyond = p.used < p.run;
  p.copy = p.copy || p.beyond;
  p.copied = p.copy ? p.size[1] * p.size[2] * g.c : 0;
  p.rows = g.stride[1] == 1 && g.stride[2] == 1
               ? TileRows::matrix((g.out[1] - 1) * p.size[2] + g.out[2], p.size[2], g.out[2], g.c)
               : TileRows::halves(g.out[1], g.out[2], g.stride[2] * g.c, g.stride[1] * p.size[2] * g.c);
  return p;
}

// size[1] is the number of lines that follow each other.
Plan plan_of_lines(const ConvArgs& g) {
  Plan p = {};
  p.lines = true;
  p.used = g.kernel[2] * g.c;
  p.run = round_up(p.used, kBf16Step);
  p.k = g.kernel[1] * p.run;
  p.size[0] = g.stride[1];
  p.size[1] = ceil_div((g.out[1] - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1, g.stride[1]);
  p.size[2] = g.out[2];
  p.copied = p.size[0] * p.size[1] * p.size[2] * p.run;
  p.rows = TileRows::matrix(g.out[1] * g.out[2], g.out[2], g.out[2], p.run);
  return p;
}

bool wastes_tiles(const ConvArgs& g, const Plan& p) {
  return static_cast<double>(g.n * p.rows.tiles()) >
         kMostTiles * static_cast<double>(ceil_div(g.n * g.out[1] * g.out[2], kBf16Tile));
}

Plan with_panels(const ConvArgs& g, Plan p) {
  const int64_t near =
      ((p.lines ? kBf16Tile - 1 : kBf16Tile) * p.rows.row + p.run) * static_cast<int64_t>(sizeof(bf16));
  p.together = max64(1, min64(kNearBytes / max64(near, 1), p.k / max64(p.run, 1)));
  p.panels = ceil_div(g.oc, kPanel);
  return p;
}

Plan plan(const ConvArgs& g) {
  const Plan p = plan_in_place(g);
  // Otherwise lines are no more copies.
  const bool overlap = g.dilation[2] == 1 && g.kernel[2] > g.stride[2];
  const bool is_good = p.beyond ? overlap && !wastes_tiles(g, p) : p.rows.half == 0 || !wastes_tiles(g, p);
  return with_panels(g, is_good ? p : plan_of_lines(g));
}

struct Buffers {
  bf16* source;
  bf16* weights;  // of whole steps
  int64_t* offsets;
  size_t bytes;
};

Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b = {};
  b.source = p.copied > 0 ? from.take<bf16>(g.n * p.copied + (p.beyond ? kBf16Step : 0)) : nullptr;
  b.weights = p.used < p.run ? from.take<bf16>(p.panels * p.k * kPanel) : nullptr;
  b.offsets = from.take<int64_t>(p.k / p.run);
  b.bytes = from.bytes();
  return b;
}

void run_offsets(const ConvArgs& g, const Plan& p, int64_t* offsets) {
  if (p.lines) {
    for (int64_t j = 0; j < g.kernel[1]; ++j) {
      const int64_t line = j * g.dilation[1];
      offsets[j] = (line % g.stride[1] * p.size[1] + line / g.stride[1]) * p.size[2] * p.run;
    }
    return;
  }
  const int64_t columns = p.k / p.run / g.kernel[1];
  for (int64_t j = 0; j < g.kernel[1]; ++j) {
    for (int64_t t = 0; t < columns; ++t) {
      *offsets++ = (j * g.dilation[1] * p.size[2] + t * g.dilation[2]) * g.c;
    }
  }
}

// What each output reads of a line of x.
void copy_line(const ConvArgs& g, const Plan& p, const bf16* line, bf16* to) {
  const int64_t step = g.stride[2], count = g.out[2];
  // The outputs whose windows are inside are [first, last).
  const int64_t first = min64(count, g.padding[2] > 0 ? ceil_div(g.padding[2], step) : 0);
  const int64_t room = g.in[2] - g.kernel[2] + g.padding[2];
  const int64_t last = max64(first, min64(count, room < 0 ? 0 : room / step + 1));
  const auto copy_taps = [&](int64_t w) {
    for (int64_t t = 0; t < g.kernel[2]; ++t) {
      const int64_t column = w * step - g.padding[2] + t;
      const bool inside = column >= 0 && column < g.in[2];
      const int64_t end = t + 1 < g.kernel[2] ? (t + 1) * g.c : p.run;
      copy_padded(line + (inside ? column * g.c : 0), inside ? g.c : 0, end - t * g.c, to + w * p.run + t * g.c);
    }
  };
  for (int64_t w = 0; w < first; ++w) copy_taps(w);
  copy_runs(line + (first * step - g.padding[2]) * g.c, step * g.c, p.used, last - first, to + first * p.run, p.run);
  for (int64_t w = last; w < count; ++w) copy_taps(w);
}

// Of all images.
void copy_lines(const ConvArgs& g, const Plan& p, bf16* to, Range lines) {
  for (int64_t at = lines.begin; at < lines.end; ++at) {
    const int64_t image = at / p.size[1] / p.size[0], phase = at / p.size[1] % p.size[0];
    const int64_t h = at % p.size[1] * g.stride[1] + phase - g.padding[1];
    bf16* const line = to + at * p.size[2] * p.run;
    if (h < 0 || h >= g.in[1]) {
      std::memset(line, 0, static_cast<size_t>(p.size[2] * p.run) * sizeof(bf16));
    } else {
      copy_line(g, p, static_cast<const bf16*>(g.x) + (image * g.in[1] + h) * g.in[2] * g.c, line);
    }
  }
}

void copy_weights(const ConvArgs& g, const Plan& p, bf16* to, Range panels) {
  const int64_t used = p.used * kPanel, rest = (p.run - p.used) * kPanel, runs = p.k / p.run;
  for (int64_t i = panels.begin * runs; i < panels.end * runs; ++i) {
    std::memcpy(to + i * p.run * kPanel, static_cast<const bf16*>(g.w_packed) + i * used,
                static_cast<size_t>(used) * sizeof(bf16));
    std::memset(to + i * p.run * kPanel + used, 0, static_cast<size_t>(rest) * sizeof(bf16));
  }
}

bool is_finite(const bf16* x, Range elements) {
  typedef uint16_t lanes __attribute__((vector_size(64)));
  constexpr int64_t kLanes = sizeof(lanes) / sizeof(uint16_t);
  lanes odd = {};
  const auto look = [&](const bf16* from, int64_t count) {
    lanes bits = {};
    std::memcpy(&bits, from, static_cast<size_t>(count) * sizeof(bf16));
    odd |= reinterpret_cast<lanes>((bits & 0x7f80) == 0x7f80);  // all bits of the exponent
  };
  int64_t i = elements.begin;
  for (; i + kLanes <= elements.end; i += kLanes) look(x + i, kLanes);
  look(x + i, elements.end - i);
  bool any = false;
  for (int64_t lane = 0; lane < kLanes; ++lane) any |= odd[lane] != 0;
  return !any;
}

// This thread's part of what is laid out; all threads wait for it.
void lay_out(const ConvArgs& g, const Plan& p, const Buffers& b, int thread, int threads) {
  if (thread == 0) run_offsets(g, p, b.offsets);
  if (p.lines) {
    copy_lines(g, p, b.source, share(g.n * p.size[0] * p.size[1], thread, threads));
  } else if (p.copy) {
    copy_with_padding(g, p.size, g.c, b.source, share(g.n * p.size[1], thread, threads));
    if (p.beyond && thread == 0) std::memset(b.source + g.n * p.copied, 0, kBf16Step * sizeof(bf16));
  }
  if (b.weights != nullptr) copy_weights(g, p, b.weights, share(p.panels, thread, threads));
  team_barrier(threads);
}

// This thread's tiles of all images, one after the other, and panels.
void multiply(const ConvArgs& g, const Plan& p, const Buffers& b, const Weights& next, int thread, int threads) {
  const Rectangle mine =
      turned_grid(g.knobs, kConvGrid, g.n * p.rows.tiles(), p.panels, 2.0 * static_cast<double>(p.rows.row * kBf16Tile),
                  2.0 * static_cast<double>(p.k) * kPanel, thread, threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const Bf16Windows windows = {p.run, p.together, b.offsets, p.rows};
  const bf16* const source = p.copied > 0 ? b.source : static_cast<const bf16*>(g.x);
  LinearArgs a = {};
  a.dtype = g.dtype;
  a.n = g.oc;
  a.k = p.k;
  a.x_stride = p.rows.row;
  a.w_packed = b.weights != nullptr ? b.weights : g.w_packed;
  a.bias = g.bias;
  a.residual_stride = a.y_stride = g.oc;
  a.act = g.act;
  const int64_t tiles = p.rows.tiles();
  for (int64_t image = mine.rows.begin / tiles; image * tiles < mine.rows.end; ++image) {
    const int64_t first = max64(mine.rows.begin - image * tiles, 0) * kBf16Tile;
    const int64_t last = min64(min64(mine.rows.end - image * tiles, tiles) * kBf16Tile, p.rows.rows);
    const int64_t output = image * g.out[1] * g.out[2] * g.oc;
    const bool is_last = (image + 1) * tiles >= mine.rows.end;
    a.m = last;
    a.x = source + image * (p.copied > 0 ? p.copied : p.size[1] * p.size[2] * g.c);
    a.residual = advance(g.residual, output, g.dtype);
    a.y = advance(g.y, output, g.dtype);
    linear_bf16_tiles(a, g.dtype, {first, last}, mine.columns, true,
                      is_last ? share_ahead(next, thread, threads) : Weights{}, &windows);
  }
}

bool lines_pay(const ConvArgs& g, const Plan& p) {
  const double whole = static_cast<double>(g.kernel[1] * g.kernel[2] * g.c);
  return g.dilation[2] == 1 && g.n * p.copied * static_cast<int64_t>(sizeof(bf16)) <= kMostBytes &&
         static_cast<double>(p.copied) <= kMostCopies * whole * static_cast<double>(p.rows.rows) &&
         static_cast<double>(p.k) <= kMostSteps * static_cast<double>(bf16_padded(g.kernel[1] * p.used));
}

}  // namespace

bool takes_bf16_tiles(const ConvArgs& g) {
  if (kBf16Rows <= 16 || g.transposed || g.groups != 1) return false;
  if (g.n <= 0 || g.c <= 0 || g.out[1] <= 0 || g.out[2] <= 0) return false;
  if (g.in[0] != 1 || g.out[0] != 1 || g.kernel[0] != 1 || g.padding[0] != 0) return false;
  const Plan p = plan(g);
  if (g.kernel[1] * g.kernel[2] <= 1 && (p.lines || p.rows.half == 0)) return false;
  if (p.run * p.together > kMostWindowRun) return false;
  // What reads beyond runs needs lines where x is not finite.
  if ((p.lines || p.beyond) && !lines_pay(g, plan_of_lines(g))) return false;
  return !wastes_tiles(g, p);
}

size_t conv_bf16_tiles_scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  void* const nowhere = reinterpret_cast<void*>(uintptr_t{64});
  const Plan p = plan(g);
  const size_t bytes = carve(g, p, nowhere).bytes, others = carve(g, with_panels(g, plan_of_lines(g)), nowhere).bytes;
  return p.beyond && others > bytes ? others : bytes;
}

void conv_bf16_tiles(const ConvArgs& g) {
  const Plan p = plan(g);
  const double products = static_cast<double>(g.n * p.rows.rows) * static_cast<double>(g.oc * p.k);
  const int worth = worth_threads(2.0 * products / kBf16Speed, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  const Weights next = weights_after(g.w_packed, 2 * p.panels * kPanel * g.kernel[1] * g.kernel[2] * g.c);
  std::atomic<bool> all_finite{true};
  parallel(threads, [&](int thread, int count) {
    if (p.beyond) {
      const Range mine = share(g.n * g.in[1] * g.in[2] * g.c, thread, count);
      if (!is_finite(static_cast<const bf16*>(g.x), mine)) all_finite.store(false, std::memory_order_relaxed);
    }
    const Buffers b = carve(g, p, g.scratch);
    lay_out(g, p, b, thread, count);
    if (all_finite.load(std::memory_order_relaxed)) return multiply(g, p, b, next, thread, count);
    const Plan lines = with_panels(g, plan_of_lines(g));
    const Buffers others = carve(g, lines, g.scratch);
    lay_out(g, lines, others, thread, count);
    multiply(g, lines, others, next, thread, count);
  });
}

}  // namespace aotpack::kernels
