// F(2 x 2, 3 x 3) of S. Winograd's minimal filtering (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
// Networks"): a tile of 2 x 2 outputs takes 16 products per pair of channels where the sum takes 36. With the tile's
// 4 x 4 inputs d, y = A^T [(G g G^T) * (B^T d B)] A, where G g G^T was computed at build time and * is element by
// element: for each of the 16 elements, a matrix product of tiles x inputs by inputs x outputs.
//
// Tiles are taken in blocks whose transformed inputs stay in the second-level cache. The 16 products of a block with
// one panel of outputs are transformed back, and finished, while they lie in the nearest.
#include "conv_winograd.h"

#include <limits>

#include "epilogue.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int kElements = 16;               // of a transformed tile
constexpr int64_t kBlockBytes = 448 << 10;  // of transformed inputs at a time
constexpr std::array<int64_t, 4> kTurnedBlockBytes = {112 << 10, 224 << 10, 896 << 10, 1792 << 10};
constexpr int64_t kBlockTiles = 8 * kMaxRows;  // at most so many tiles in a block

// Sizes of what a block takes, in floats.
struct Plan {
  int64_t high, wide, tiles;  // of the output
  int64_t row_tiles;          // tiles go by in groups of up to kMaxRows, as even as can be
  int64_t block;              // so many of these groups at a time
  int64_t row;                // of one tile's transformed inputs, one element
  int64_t plane;              // of a block's, one element
};

Plan plan(const ConvArgs& g) {
  Plan p;
  p.high = ceil_div(g.out[1], 2);
  p.wide = ceil_div(g.out[2], 2);
  p.tiles = g.n * p.high * p.wide;
  p.row_tiles = row_tiles(p.tiles);
  // A cache line more than whole vectors: rows, and planes, fall into different cache sets.
  p.row = round_up(g.c, 16) + 16;
  const int64_t fit = turned(g.knobs, kConvBytes, kTurnedBlockBytes, kBlockBytes) /
                      (kElements * p.row * static_cast<int64_t>(sizeof(float)));
  p.block = max64(1, min64(min64(fit, kBlockTiles) / kMaxRows, p.row_tiles));
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

Buffers carve(const ConvArgs& g, const Plan& p, void* scratch) {
  const int64_t threads = max64(g.num_threads, 1);
  Scratch from(scratch);
  Buffers b;
  b.inputs_size = kElements * p.plane;
  b.products_size = kElements * p.block * kMaxRows * kPanel;
  b.zeros = from.take<float>(g.c);
  b.inputs = from.take<float>(threads * b.inputs_size);
  b.products = from.take<float>(threads * b.products_size);
  b.bytes = from.bytes();
  return b;
}

// B^T d B for the channels that `load_at(row, column)` loads, element (i, j) into to[(4 i + j) * plane].
template <class Load>
AOTPACK_INLINE void transform_inputs(const Load& load_at, float* to, int64_t plane) {
  vf d[4][4];
  AOTPACK_UNROLL
  for (int j = 0; j < 4; ++j) {
    const vf a = load_at(0, j), b = load_at(1, j), c = load_at(2, j), e = load_at(3, j);
    d[0][j] = a - c;
    d[1][j] = b + c;
    d[2][j] = c - b;
    d[3][j] = b - e;
  }
  AOTPACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    store(to + (4 * i + 0) * plane, d[i][0] - d[i][2]);
    store(to + (4 * i + 1) * plane, d[i][1] + d[i][2]);
    store(to + (4 * i + 2) * plane, d[i][2] - d[i][1]);
    store(to + (4 * i + 3) * plane, d[i][1] - d[i][3]);
  }
}

// The channels of one tile; at(row, column) points to the first of them.
template <class At>
AOTPACK_INLINE void transform_tile(const At& at, int64_t channels, float* to, int64_t plane) {
  int64_t c = 0;
  for (; c + kWidth <= channels; c += kWidth) {
    transform_inputs([&](int i, int j) { return load(at(i, j) + c); }, to + c, plane);
  }
  if (const int left = static_cast<int>(channels - c); left > 0) {
    transform_inputs([&](int i, int j) { return load_partial(at(i, j) + c, left); }, to + c, plane);
  }
}

struct Tile {
  int64_t image, top, left;  // its first output pixel
};
Tile tile_at(const Plan& p, int64_t index) {
  return {index / (p.high * p.wide), index / p.wide % p.high * 2, index % p.wide * 2};
}

// One thread's share: row tiles x panels.
class Part {
 public:
  Part(const ConvArgs& g, const Plan& p, const Buffers& b, int thread)
      : g_(g),
        p_(p),
        zeros_(b.zeros),
        inputs_(b.inputs + thread * b.inputs_size),
        products_(b.products + thread * b.products_size) {}

  void run(Range row_tiles, Range panels) {
    for (int64_t first = row_tiles.begin; first < row_tiles.end; first += p_.block) {
      const Range block = {first, min64(first + p_.block, row_tiles.end)};
      const Range tiles = {group(block.begin).begin, group(block.end - 1).end};
      for (int64_t t = tiles.begin; t < tiles.end; ++t) gather(tile_at(p_, t), inputs_ + (t - tiles.begin) * p_.row);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        multiply(panel, block, tiles);
        scatter(panel, tiles);
      }
    }
  }

 private:
  void gather(const Tile& tile, float* to) const {
    const int64_t pixel = pixel_step(g_);
    const float* const x = static_cast<const float*>(g_.x) + tile.image * g_.in[1] * g_.in[2] * pixel;
    const int64_t top = tile.top - g_.padding[1], left = tile.left - g_.padding[2];
    const int64_t line = g_.in[2] * pixel;
    if (top >= 0 && top + 4 <= g_.in[1] && left >= 0 && left + 4 <= g_.in[2]) {
      const float* const corner = x + top * line + left * pixel;
      const float* const rows[4] = {corner, corner + line, corner + 2 * line, corner + 3 * line};
      return transform_tile([&](int i, int j) { return rows[i] + j * pixel; }, g_.c, to, p_.plane);
    }
    const float* pixels[4][4];
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t h = top + i, w = left + j;
        const bool inside = h >= 0 && h < g_.in[1] && w >= 0 && w < g_.in[2];
        pixels[i][j] = inside ? x + h * line + w * pixel : zeros_;
      }
    }
    transform_tile([&](int i, int j) { return pixels[i][j]; }, g_.c, to, p_.plane);
  }

  // The tiles that are multiplied together. Which they are depends on the sizes alone, and so does every sum's order.
  Range group(int64_t index) const { return share(p_.tiles, index, p_.row_tiles); }

  void multiply(int64_t panel, Range block, Range tiles) {
    const float* rows[kMaxRows];
    MicroArgs m = {};
    m.rows = rows;
    m.row_step = p_.row;
    m.taps = 1;
    m.k = g_.c;
    m.b_stride = kPanel;
    m.y_stride = kPanel;
    m.columns = static_cast<int>(round_up(columns_of(panel), kWidth));
    for (int64_t element = 0; element < kElements; ++element) {
      m.b = static_cast<const float*>(g_.w_packed) + (panel * kElements + element) * g_.c * kPanel;
      for (int64_t index = block.begin; index < block.end; ++index) {
        const Range mine = group(index);
        const int64_t first = mine.begin - tiles.begin, count = mine.end - mine.begin;
        for (int64_t r = 0; r < count; ++r) rows[r] = inputs_ + element * p_.plane + (first + r) * p_.row;
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
      const Tile tile = tile_at(p_, t);
      const float* const products = products_ + (t - tiles.begin) * kPanel;
      const int64_t high_in = min64(2, g_.out[1] - tile.top), wide_in = min64(2, g_.out[2] - tile.left);
      const int64_t line = g_.out[2] * g_.oc;
      const int64_t at = (tile.image * g_.out[1] + tile.top) * line + tile.left * g_.oc + panel * kPanel;
      for (int column = 0; column < columns_of(panel); column += kWidth) {
        vf y[2][2];
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

  static AOTPACK_INLINE void transform_products(const float* m, int64_t plane, vf bias, vf y[2][2]) {
    vf top[4], low[4];
    AOTPACK_UNROLL
    for (int j = 0; j < 4; ++j) {
      const vf middle = load(m + (4 + j) * plane), next = load(m + (8 + j) * plane);
      top[j] = load(m + j * plane) + middle + next;
      low[j] = middle - next - load(m + (12 + j) * plane);
    }
    y[0][0] = top[0] + top[1] + top[2] + bias;
    y[0][1] = top[1] - top[2] - top[3] + bias;
    y[1][0] = low[0] + low[1] + low[2] + bias;
    y[1][1] = low[1] - low[2] - low[3] + bias;
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
};

}  // namespace

size_t conv_winograd_scratch_bytes(const ConvArgs& g) {
  // Counting needs an address; it is not touched.
  return carve(g, plan(g), reinterpret_cast<void*>(uintptr_t{64})).bytes;
}

void conv_winograd(const ConvArgs& g) {
  const Plan p = plan(g);
  const Buffers b = carve(g, p, g.scratch);
  for (int64_t i = 0; i < g.c; ++i) b.zeros[i] = 0.0f;
  const int64_t panels = ceil_div(g.oc, kPanel);
  const double depth = static_cast<double>(kElements * g.c);
  const double flops = 2.0 * depth * static_cast<double>(p.tiles) * static_cast<double>(panels * kPanel);
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
        Part(g, p, b, thread).run(mine.rows, mine.columns);
      }
    });
  });
}

}  // namespace aotpack::kernels
