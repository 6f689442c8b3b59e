// F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3) of S. Winograd's minimal filtering (A. Lavin, S. Gray, "Fast Algorithms for
// Convolutional Neural Networks"): a tile of 2 x 2 outputs takes 16 products per pair of channels where the sum takes
// 36, one of 4 x 4 outputs takes 36 instead of 144. With the tile's inputs d, 4 x 4 or 6 x 6,
// y = A^T [(G g G^T) * (B^T d B)] A, where G g G^T was computed at build time and * is element by element: for each of
// the elements, a matrix product of tiles x inputs by inputs x outputs.
//
// Tiles are taken in blocks whose transformed inputs stay in the second-level cache. The products of a block with one
// panel of outputs are transformed back, and finished, while they lie in the nearest.
#include "conv_winograd.h"

#include <limits>

#include "caches.h"
#include "epilogue.h"
#include "parallel.h"
#include "winograd_tiles.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kBlockBytes = 448 << 10;  // of transformed inputs at a time
constexpr std::array<int64_t, 4> kTurnedBlockBytes = {112 << 10, 224 << 10, 896 << 10, 1792 << 10};
constexpr int64_t kBlockTiles = 8 * kMaxRows;  // at most so many tiles in a block
// At least about so many: all weights go by for each block, and with many channels they come from far.
constexpr int64_t kLeastTiles = 24;
constexpr double kTransformFlops = 12.0;  // in the time of a number of a transform, about

// Sizes of what a block takes, in floats.
struct Plan {
  int64_t high, wide, tiles;  // of the output
  int64_t row_tiles;          // tiles go by in groups of up to kMaxRows, as even as can be
  int64_t block;              // so many of these groups at a time
  int64_t row;                // of one tile's transformed inputs, one element
  int64_t plane;              // of a block's, one element
};

template <class Tiles>
constexpr int64_t kElements = Tiles::kInputs * Tiles::kInputs;  // of a transformed tile

template <class Tiles>
Plan plan(const ConvArgs& g) {
  Plan p;
  p.high = ceil_div(g.out[1], Tiles::kOutputs);
  p.wide = ceil_div(g.out[2], Tiles::kOutputs);
  p.tiles = g.n * p.high * p.wide;
  p.row_tiles = row_tiles(p.tiles);
  // A cache line more than whole vectors: rows, and planes, fall into different cache sets.
  p.row = round_up(g.c, 16) + 16;
  const int64_t fit = turned(g.knobs, kConvBytes, kTurnedBlockBytes, near_bytes(kBlockBytes)) /
                      (kElements<Tiles> * p.row * static_cast<int64_t>(sizeof(float)));
  const int64_t tiles = max64(min64(fit, kBlockTiles), kLeastTiles);
  p.block = max64(1, min64(tiles / kMaxRows, p.row_tiles));
  p.plane = p.block * kMaxRows * p.row + 16;
  return p;
}

struct Buffers {
  float* zeros;
  float* inputs;    // [thread][element][tile][row]
  float* products;  // [thread][element][tile][panel]
  int64_t inputs_size, products_size;
  size_t bytes;
};

template <class Tiles>
Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  const int64_t threads = max64(g.num_threads, 1);
  Scratch from(scratch);
  Buffers b;
  b.inputs_size = kElements<Tiles> * p.plane;
  b.products_size = kElements<Tiles> * p.block * kMaxRows * kPanel;
  b.zeros = from.take<float>(g.c);
  b.inputs = from.take<float>(threads * b.inputs_size);
  b.products = from.take<float>(threads * b.products_size);
  b.bytes = from.bytes();
  return b;
}

// B^T d B for the channels that `load_at(row, column)` loads, element (i, j) into to[(kInputs i + j) * plane].
template <class Tiles, class Load>
AOTPACK_INLINE void transform_inputs(const Load& load_at, float* to, int64_t plane) {
  constexpr int kInputs = Tiles::kInputs;
  vf d[kInputs][kInputs];
  AOTPACK_UNROLL
  for (int j = 0; j < kInputs; ++j) {
    vf column[kInputs];
    AOTPACK_UNROLL
    for (int i = 0; i < kInputs; ++i) column[i] = load_at(i, j);
    Tiles::inputs(column);
    AOTPACK_UNROLL
    for (int i = 0; i < kInputs; ++i) d[i][j] = column[i];
  }
  AOTPACK_UNROLL
  for (int i = 0; i < kInputs; ++i) {
    Tiles::inputs(d[i]);
    AOTPACK_UNROLL
    for (int j = 0; j < kInputs; ++j) store(to + (kInputs * i + j) * plane, d[i][j]);
  }
}

// The channels of one tile; at(row, column) points to the first of them.
template <class Tiles, class At>
AOTPACK_INLINE void transform_tile(const At& at, int64_t channels, float* to, int64_t plane) {
  int64_t c = 0;
  for (; c + kWidth <= channels; c += kWidth) {
    transform_inputs<Tiles>([&](int i, int j) { return load(at(i, j) + c); }, to + c, plane);
  }
  if (const int left = static_cast<int>(channels - c); left > 0) {
    transform_inputs<Tiles>([&](int i, int j) { return load_partial(at(i, j) + c, left); }, to + c, plane);
  }
}

// One thread's share: row tiles x panels.
template <class Tiles>
class Part {
  static constexpr int kInputs = Tiles::kInputs, kOutputs = Tiles::kOutputs;

 public:
  Part(const ConvArgs& g, const Plan& p, const Buffers& b, int thread)
      : g_(g),
        p_(p),
        zeros_(b.zeros),
        inputs_(b.inputs + thread * b.inputs_size),
        products_(b.products + thread * b.products_size),
        asks_(max64(g.n * g.in[1] * g.in[2] * g.c, g.n * g.out[1] * g.out[2] * g.oc) * 4 >= kAheadBytes) {}

  void run(Range row_tiles, Range panels) {
    for (int64_t first = row_tiles.begin; first < row_tiles.end; first += p_.block) {
      const Range block = {first, min64(first + p_.block, row_tiles.end)};
      const Range tiles = {group(block.begin).begin, group(block.end - 1).end};
      for (int64_t t = tiles.begin; t < tiles.end; ++t) gather(tile_at(t), inputs_ + (t - tiles.begin) * p_.row);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const Range next = {block.end, min64(block.end + p_.block, row_tiles.end)};
        multiply(panel, block, tiles, panel == panels.begin ? next : Range{});
        scatter(panel, tiles);
      }
    }
  }

 private:
  struct Tile {
    int64_t image, top, left;  // its first output pixel
  };
  Tile tile_at(int64_t index) const {
    return {index / (p_.high * p_.wide), index / p_.wide % p_.high * kOutputs, index % p_.wide * kOutputs};
  }

  void gather(const Tile& tile, float* to) const {
    const int64_t pixel = pixel_step(g_);
    const float* const x = static_cast<const float*>(g_.x) + tile.image * g_.in[1] * g_.in[2] * pixel;
    const int64_t top = tile.top - g_.padding[1], left = tile.left - g_.padding[2];
    const int64_t line = g_.in[2] * pixel;
    if (top >= 0 && top + kInputs <= g_.in[1] && left >= 0 && left + kInputs <= g_.in[2]) {
      const float* rows[kInputs];
      rows[0] = x + top * line + left * pixel;
      for (int i = 1; i < kInputs; ++i) rows[i] = rows[i - 1] + line;
      return transform_tile<Tiles>([&](int i, int j) { return rows[i] + j * pixel; }, g_.c, to, p_.plane);
    }
    const float* pixels[kInputs][kInputs];
    for (int64_t i = 0; i < kInputs; ++i) {
      for (int64_t j = 0; j < kInputs; ++j) {
        const int64_t h = top + i, w = left + j;
        const bool inside = h >= 0 && h < g_.in[1] && w >= 0 && w < g_.in[2];
        pixels[i][j] = inside ? x + h * line + w * pixel : zeros_;
      }
    }
    transform_tile<Tiles>([&](int i, int j) { return pixels[i][j]; }, g_.c, to, p_.plane);
  }

  // The tiles that are multiplied together. Which they are depends on the sizes alone, and so does every sum's order.
  Range group(int64_t index) const { return share(p_.tiles, index, p_.row_tiles); }

  // Asks for what a tile's outputs, of one panel, will be added to and written to.
  int ask_for_outputs(int64_t panel, int64_t index, Ahead* to) const {
    const Tile tile = tile_at(index);
    const int64_t line = g_.out[2] * g_.oc;
    const int64_t at = (tile.image * g_.out[1] + tile.top) * line + tile.left * g_.oc + panel * kPanel;
    const int high = static_cast<int>(min64(kOutputs, g_.out[1] - tile.top));
    const int wide = static_cast<int>(min64(kOutputs, g_.out[2] - tile.left));
    int count = 0;
    for (const void* const base : {g_.residual, static_cast<const void*>(g_.y)}) {
      if (base == nullptr) continue;
      for (int i = 0; i < high; ++i) {
        const char* const from = static_cast<const char*>(base) + 4 * (at + i * line);
        to[count++] = {from, 4 * columns_of(panel), 4 * g_.oc, wide};
      }
    }
    return count;
  }

  // The same for inputs of a tile: those that tiles above and to the left of it have not read.
  int ask_for_inputs(int64_t index, Ahead* to) const {
    constexpr int64_t kRead = kInputs - kOutputs;
    const Tile tile = tile_at(index);
    const int64_t pixel = pixel_step(g_), top = tile.top - g_.padding[1] + kRead;
    const Range rows = {max64(top, 0), min64(top + kOutputs, g_.in[1])};
    const int64_t left = tile.left - g_.padding[2] + kRead;
    const Range columns = {max64(left, 0), min64(left + kOutputs, g_.in[2])};
    if (pixel != g_.c || rows.begin >= rows.end || columns.begin >= columns.end) return 0;
    const int64_t at = (tile.image * g_.in[1] + rows.begin) * g_.in[2] + columns.begin;
    *to = {static_cast<const char*>(g_.x) + 4 * at * pixel, 4 * (columns.end - columns.begin) * pixel,
           4 * g_.in[2] * pixel, static_cast<int>(rows.end - rows.begin)};
    return 1;
  }

  // `next` are the row tiles whose inputs are asked for.
  void multiply(int64_t panel, Range block, Range tiles, Range next) {
    const float* rows[kMaxRows];
    Ahead ahead[2 * kOutputs + 1];
    MicroArgs m = {};
    m.rows = rows;
    m.row_step = p_.row;
    m.taps = 1;
    m.k = g_.c;
    m.ahead = ahead;
    m.b_stride = kPanel;
    m.y_stride = kPanel;
    m.columns = static_cast<int>(round_up(columns_of(panel), kWidth));
    for (int64_t element = 0; element < kElements<Tiles>; ++element) {
      m.b = static_cast<const float*>(g_.w_packed) + (panel * kElements<Tiles> + element) * g_.c * kPanel;
      for (int64_t index = block.begin; index < block.end; ++index) {
        const Range mine = group(index);
        const int64_t first = mine.begin - tiles.begin, count = mine.end - mine.begin;
        for (int64_t r = 0; r < count; ++r) rows[r] = inputs_ + element * p_.plane + (first + r) * p_.row;
        m.ahead_count = 0;
        if (asks_ && element < count) m.ahead_count = ask_for_outputs(panel, mine.begin + element, ahead);
        // The last elements ask for inputs, a tile each.
        const int64_t later = next.begin + (index - block.begin), from_end = kElements<Tiles> - 1 - element;
        if (asks_ && later < next.end && from_end < group(later).end - group(later).begin) {
          m.ahead_count += ask_for_inputs(group(later).begin + from_end, ahead + m.ahead_count);
        }
        m.y = products_ + (element * (tiles.end - tiles.begin) + first) * kPanel;
        micro(DType::f32, static_cast<int>(count), m);
      }
    }
  }

  // A^T m A of the products, with the bias, the residual and the activation, into y.
  void scatter(int64_t panel, Range tiles) const {
    alignas(64) float bias[kPanel];
    panel_bias(advance(g_.bias, panel * kPanel, DType::f32), DType::f32, columns_of(panel), bias);
    const bool clamp = g_.act == Act::relu || g_.act == Act::relu6;
    const vf low = vset(clamp ? 0.0f : -std::numeric_limits<float>::infinity());
    const vf high = vset(g_.act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity());
    const int64_t plane = (tiles.end - tiles.begin) * kPanel;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const Tile tile = tile_at(t);
      const float* const products = products_ + (t - tiles.begin) * kPanel;
      const int64_t high_in = min64(kOutputs, g_.out[1] - tile.top), wide_in = min64(kOutputs, g_.out[2] - tile.left);
      const int64_t line = g_.out[2] * g_.oc;
      const int64_t at = (tile.image * g_.out[1] + tile.top) * line + tile.left * g_.oc + panel * kPanel;
      for (int column = 0; column < columns_of(panel); column += kWidth) {
        vf y[kOutputs][kOutputs];
        transform_products(products + column, plane, load(bias + column), y);
        const int left = columns_of(panel) - column;
        for (int64_t i = 0; i < high_in; ++i) {
          for (int64_t j = 0; j < wide_in; ++j) {
            finish_pixel(y[i][j], at + i * line + j * g_.oc + column, left, low, high);
          }
        }
      }
      if (g_.act == Act::none || clamp) continue;
      for (int64_t i = 0; i < high_in; ++i) {
        float* const rows = static_cast<float*>(g_.y) + at + i * line;
        finish(rows, g_.oc, wide_in, columns_of(panel), DType::f32, nullptr, 0, g_.act, rows, g_.oc);
      }
    }
  }

  static AOTPACK_INLINE void transform_products(const float* m, int64_t plane, vf bias, vf y[kOutputs][kOutputs]) {
    vf columns[kOutputs][kInputs];
    AOTPACK_UNROLL
    for (int j = 0; j < kInputs; ++j) {
      vf products[kInputs], column[kOutputs];
      AOTPACK_UNROLL
      for (int i = 0; i < kInputs; ++i) products[i] = load(m + (kInputs * i + j) * plane);
      Tiles::outputs(products, column);
      AOTPACK_UNROLL
      for (int i = 0; i < kOutputs; ++i) columns[i][j] = column[i];
    }
    AOTPACK_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      Tiles::outputs(columns[i], y[i]);
      AOTPACK_UNROLL
      for (int j = 0; j < kOutputs; ++j) y[i][j] += bias;
    }
  }

  AOTPACK_INLINE void finish_pixel(vf sum, int64_t at, int left, vf low, vf high) const {
    float* const y = static_cast<float*>(g_.y) + at;
    const float* const residual = static_cast<const float*>(g_.residual);
    if (left >= kWidth) {
      if (residual != nullptr) sum += load(residual + at);
      store(y, at_most(at_least(sum, low), high));
    } else {
      if (residual != nullptr) sum += load_partial(residual + at, left);
      store_partial(y, at_most(at_least(sum, low), high), left);
    }
  }

  int columns_of(int64_t panel) const { return static_cast<int>(min64(kPanel, g_.oc - panel * kPanel)); }

  const ConvArgs& g_;
  const Plan& p_;
  const float* zeros_;
  float* inputs_;
  float* products_;
  bool asks_;
};

template <class Tiles>
void run(const ConvArgs& g) {
  const Plan p = plan<Tiles>(g);
  const Buffers b = carve<Tiles>(g, p, g.scratch);
  for (int64_t i = 0; i < g.c; ++i) b.zeros[i] = 0.0f;
  const int64_t panels = ceil_div(g.oc, kPanel);
  const double depth = static_cast<double>(kElements<Tiles> * g.c);
  const double transforms = static_cast<double>(kElements<Tiles> * p.tiles * (g.c + panels * kPanel));
  const double flops =
      2.0 * depth * static_cast<double>(p.tiles) * static_cast<double>(panels * kPanel) + kTransformFlops * transforms;
  const int worth = worth_threads(flops / 200e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kConvThreads, g.num_threads, worth);
  const double row_bytes = 4.0 * depth * kMaxRows, column_bytes = 4.0 * depth * kPanel;
  Pieces pieces(threads, flops / 100e3);
  parallel(threads, [&](int thread, int count) {
    pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) {
      const Rectangle all = turned_grid(g.knobs, kConvGrid, p.row_tiles, panels, row_bytes, column_bytes, part, count);
      // Along the rows, whose inputs are transformed for each piece.
      const Rectangle mine = piece_of(all, piece, of, row_bytes, 0.0);
      if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) {
        Part<Tiles>(g, p, b, thread).run(mine.rows, mine.columns);
      }
    });
  });
}

template <class Tiles>
size_t scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  return carve<Tiles>(g, plan<Tiles>(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

}  // namespace

size_t conv_winograd_scratch_bytes(const ConvArgs& g) {
  return g.winograd == Winograd::four ? scratch_bytes<TilesOfFour>(g) : scratch_bytes<TilesOfTwo>(g);
}

void conv_winograd(const ConvArgs& g) { g.winograd == Winograd::four ? run<TilesOfFour>(g) : run<TilesOfTwo>(g); }

}  // namespace aotpack::kernels
