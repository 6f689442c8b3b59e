#include "gemm.h"

#include <utility>

#include "caches.h"
#include "element_types.h"
#include "epilogue.h"
#include "gemm_bf16.h"
#include "gemm_result.h"
#include "pack.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kWholeDepth = 1024;  // of k: up to here in one piece
constexpr int64_t kPieceDepth = 384;   // otherwise in pieces of about this
constexpr int64_t kMaxPanels = 12;     // of b at a time, and no more than fit into the second-level cache:
constexpr int64_t kPanelBytes = 640 << 10;
constexpr int64_t kMostPanels = 32;  // the same where the knobs say so
constexpr std::array<int64_t, 4> kTurnedDepths = {192, 256, 512, 1024};
constexpr std::array<int64_t, 4> kTurnedPanelBytes = {128 << 10, 320 << 10, 1280 << 10, 2560 << 10};
constexpr int64_t kTileBlocks = 16;  // row tiles that share a packed piece of b when k comes in several pieces
constexpr int64_t kFewRows = 4;      // b is not packed for so few
constexpr int kDotColumns = 4;
constexpr int64_t kDirectDepth = 16;    // rows of b that are read side by side where it lies
constexpr int64_t kDirectPanels = 256;  // columns of them before the next rows

// y = a b is y' = b' a' transposed: taken where that makes rows of y contiguous, or few rows of few columns.
GemmArgs orient(GemmArgs g) {
  const bool few_columns = g.n <= kFewRows && g.m > g.n;
  const bool few_rows = g.m <= kFewRows && g.n > g.m;
  if (few_columns || (g.y_col != 1 && g.y_row == 1 && !few_rows)) {
    std::swap(g.m, g.n);
    std::swap(g.a, g.b);
    std::swap(g.a_batch, g.b_batch);
    std::swap(g.a_row, g.b_col);
    std::swap(g.a_col, g.b_row);
    std::swap(g.bias_row, g.bias_col);
    std::swap(g.y_row, g.y_col);
  }
  return g;
}

struct Plan {
  bool dots;    // few rows, b contiguous along k: dot products
  bool direct;  // b is read where it lies, but for the last columns
  bool stage;   // rows of a are copied before use
  int64_t depth, chunks, panels, blocks, super;
  int64_t rows;  // of the largest tile
};

Plan plan(const GemmArgs& g) {
  Plan p = {};
  p.dots = g.m <= kFewRows && g.b_row == 1 && g.b_col != 1;
  p.direct = g.m <= kFewRows && g.b_col == 1;
  const bool aliasing = g.m > 4 && g.k >= 256 && (g.a_row * 4) % 2048 == 0;
  p.stage = g.dtype != DType::f32 || g.a_col != 1 || aliasing;
  const int64_t piece = turned(g.knobs, kGemmDepth, kTurnedDepths, g.k <= kWholeDepth ? kWholeDepth : kPieceDepth);
  p.chunks = max64(1, ceil_div(g.k, piece));
  p.depth = max64(1, p.chunks == 1 ? g.k : round_up(ceil_div(g.k, p.chunks), 16));
  p.chunks = max64(1, ceil_div(g.k, p.depth));
  const int64_t bytes = turned(g.knobs, kGemmBytes, kTurnedPanelBytes, near_bytes(kPanelBytes));
  const int64_t most = g.knobs.at(kGemmBytes) != 0 ? kMostPanels : kMaxPanels;
  p.panels = max64(1, min64(min64(most, ceil_div(g.n, kPanel)), bytes / (p.depth * kPanel * 4)));
  if (p.direct) {  // along the rows, as memory likes it; the sums are few
    p.depth = max64(1, min64(g.k, kDirectDepth));
    p.chunks = max64(1, ceil_div(g.k, p.depth));
    p.panels = max64(1, min64(ceil_div(g.n, kPanel), kDirectPanels));
  }
  p.blocks = row_tiles(g.m);
  p.rows = ceil_div(g.m, max64(p.blocks, 1));
  p.super = p.chunks == 1 ? p.blocks : min64(p.blocks, kTileBlocks);
  return p;
}

struct Buffers {
  float *packed, *staged, *partial;
  size_t bytes;
};
int64_t staged_stride(const Plan& p) { return round_up(p.depth, 16) + 16; }
// For one thread.
Buffers carve(const Plan& p, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.packed = from.take<float>((p.direct ? 1 : p.panels) * p.depth * kPanel);
  b.staged = from.take<float>(kMaxRows * staged_stride(p));
  b.partial = from.take<float>(p.chunks == 1 ? 0 : p.super * p.rows * p.panels * kPanel);
  b.bytes = from.bytes();
  return b;
}

// One tile of y from its last piece of k, straight into place where nothing but one addition is asked for: of the sums
// of earlier pieces, which are `m.residual`, or of the bias.
void last_tile(const GemmArgs& g, int64_t item, int64_t row, int64_t column, int count, DType b_dtype, MicroArgs m) {
  const bool biased = has_bias(g);
  const bool addable = m.residual == nullptr && g.beta == 1.0f && g.bias_col == 1;
  if (g.dtype == DType::f32 && g.y_col == 1 && g.alpha == 1.0f && (!biased || addable)) {
    m.y = static_cast<float*>(g.y) + item * g.y_batch + row * g.y_row + column;
    m.y_stride = g.y_row;
    if (biased) {
      m.residual = static_cast<const float*>(g.bias) + item * g.bias_batch + row * g.bias_row + column;
      m.residual_stride = g.bias_row;
    }
    micro(b_dtype, count, m);
    return;
  }
  alignas(64) float tile[kMaxRows * kPanel];
  m.y = tile;
  m.y_stride = kPanel;
  micro(b_dtype, count, m);
  write_result(g, item, row, column, count, m.columns, tile, kPanel);
}

void rectangle(const GemmArgs& g, const Plan& p, const Buffers& buffers, int64_t item, Range block_range,
               Range panel_range) {
  const void* a = advance(g.a, item * g.a_batch, g.dtype);
  const void* b = advance(g.b, item * g.b_batch, g.dtype);
  for (int64_t panel = panel_range.begin; panel < panel_range.end; panel += p.panels) {
    const int64_t group = min64(p.panels, panel_range.end - panel);
    for (int64_t first = block_range.begin; first < block_range.end; first += p.super) {
      const int64_t last = min64(first + p.super, block_range.end);
      for (int64_t chunk = 0; chunk < p.chunks; ++chunk) {
        const int64_t k0 = chunk * p.depth, depth = min64(p.depth, g.k - k0);
        const auto columns_of = [&](int64_t j) { return min64(kPanel, g.n - (panel + j) * kPanel); };
        const auto b_of = [&](int64_t j) { return advance(b, k0 * g.b_row + (panel + j) * kPanel * g.b_col, g.dtype); };
        const auto in_place = [&](int64_t j) { return p.direct && columns_of(j) == kPanel; };
        // At most the last panel is packed where the others are in place.
        const auto packed = [&](int64_t j) { return buffers.packed + (p.direct ? 0 : j) * p.depth * kPanel; };
        for (int64_t j = 0; j < group; ++j) {
          if (in_place(j)) continue;
          pack_panel(b_of(j), g.b_row, g.b_col, g.dtype, depth, columns_of(j), packed(j));
        }
        for (int64_t block = first; block < last; ++block) {
          const Range rows = share(g.m, block, p.blocks);
          const int count = static_cast<int>(rows.end - rows.begin);
          const float* pointers[kMaxRows];
          const void* from = advance(a, rows.begin * g.a_row + k0 * g.a_col, g.dtype);
          if (p.stage) gather_rows(from, g.a_row, g.a_col, g.dtype, count, depth, buffers.staged, staged_stride(p));
          for (int r = 0; r < count; ++r) {
            pointers[r] =
                p.stage ? buffers.staged + r * staged_stride(p) : static_cast<const float*>(from) + r * g.a_row;
          }
          for (int64_t j = 0; j < group; ++j) {
            float* sums = buffers.partial + ((block - first) * p.panels + j) * p.rows * kPanel;
            const DType b_dtype = in_place(j) ? g.dtype : DType::f32;
            MicroArgs m = {};
            m.rows = pointers;
            m.row_step = p.stage ? staged_stride(p) : g.a_row;
            m.taps = 1;
            m.k = depth;
            m.b = in_place(j) ? b_of(j) : packed(j);
            m.b_stride = in_place(j) ? g.b_row : kPanel;
            m.b_ahead = in_place(j) ? 8 * kPanel : 0;  // along the rows
            // Each piece begins at zero: rounding grows with the length of a piece and their number, not with k.
            m.residual = chunk == 0 ? nullptr : sums;
            m.residual_stride = kPanel;
            if (chunk + 1 < p.chunks) {
              m.columns = static_cast<int>(kPanel);
              m.y = sums;
              m.y_stride = kPanel;
              micro(b_dtype, count, m);
            } else {
              m.columns = static_cast<int>(columns_of(j));
              last_tile(g, item, rows.begin, (panel + j) * kPanel, count, b_dtype, m);
            }
          }
        }
      }
    }
  }
}

// sums[r * kPanel + c] = dot(a row r, b column c) for m <= kFewRows rows and `columns` columns.
template <class T>
void dots(const GemmArgs& g, const float* const* rows, const T* b, int64_t k, int columns, float* sums) {
  for (int r = 0; r < g.m; ++r) {
    vf acc[kDotColumns] = {};
    int64_t i = 0;
    if (columns == kDotColumns) {
      for (; i + kWidth <= k; i += kWidth) {
        const vf x = load(rows[r] + i);
        AOTPACK_UNROLL
        for (int c = 0; c < kDotColumns; ++c) acc[c] += x * load(b + c * g.b_col + i);
      }
    }
    for (int c = 0; c < columns; ++c) {
      float sum = sum_of(acc[c]);
      int64_t rest = i;
      vf more = {};
      for (; rest + kWidth <= k; rest += kWidth) more += load(rows[r] + rest) * load(b + c * g.b_col + rest);
      sum += sum_of(more);
      for (; rest < k; ++rest) sum += rows[r][rest] * to_float(b[c * g.b_col + rest]);
      sums[r * kPanel + c] += sum;
    }
  }
}

void dot_columns(const GemmArgs& g, const Plan& p, const Buffers& buffers, int64_t item, Range panel_range) {
  const void* a = advance(g.a, item * g.a_batch, g.dtype);
  const void* b = advance(g.b, item * g.b_batch, g.dtype);
  const int64_t end = min64(panel_range.end * kPanel, g.n);
  const float* rows[kFewRows];
  for (int64_t column = panel_range.begin * kPanel; column < end; column += kPanel) {
    const int64_t columns = min64(kPanel, end - column);
    alignas(64) float sums[kFewRows * kPanel] = {};
    for (int64_t chunk = 0; chunk < p.chunks; ++chunk) {
      const int64_t k0 = chunk * p.depth, depth = min64(p.depth, g.k - k0);
      const void* from = advance(a, k0 * g.a_col, g.dtype);
      // Staged once where k comes in one piece.
      if (p.stage && (p.chunks > 1 || column == panel_range.begin * kPanel)) {
        gather_rows(from, g.a_row, g.a_col, g.dtype, g.m, depth, buffers.staged, staged_stride(p));
      }
      for (int64_t r = 0; r < g.m; ++r) {
        rows[r] = p.stage ? buffers.staged + r * staged_stride(p) : static_cast<const float*>(from) + r * g.a_row;
      }
      for (int64_t j = 0; j < columns; j += kDotColumns) {
        const int count = static_cast<int>(min64(kDotColumns, columns - j));
        const int64_t at = (column + j) * g.b_col + k0;
        with_type(g.dtype, [&]<class T>() { dots(g, rows, static_cast<const T*>(b) + at, depth, count, sums + j); });
      }
    }
    write_result(g, item, 0, column, g.m, columns, sums, kPanel);
  }
}

}  // namespace

KnobSizes gemm_knobs(const GemmArgs& args) {
  const GemmArgs g = orient(args);
  const Plan p = plan(g);
  const bool is_shared = g.num_threads > 1, is_blocked = !p.dots && !p.direct;
  return {static_cast<uint8_t>(is_blocked && g.k > kTurnedDepths.front() ? kTurnedDepths.size() + 1 : 1),
          static_cast<uint8_t>(is_blocked && g.n > kPanel ? kTurnedPanelBytes.size() + 1 : 1),
          is_shared ? kGridPositions : uint8_t{1}, is_shared ? kThreadPositions : uint8_t{1}};
}

size_t gemm_scratch_bytes(const GemmArgs& args) {
  const GemmArgs g = orient(args);
  if (gemm_takes_bf16(g)) return gemm_bf16_scratch_bytes(g);
  const Plan p = plan(g);
  return carve(p, reinterpret_cast<void*>(uintptr_t{64})).bytes * static_cast<size_t>(max64(args.num_threads, 1));
}

void gemm(const GemmArgs& args) {
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return;
  const GemmArgs g = orient(args);
  if (gemm_takes_bf16(g)) return gemm_bf16(g);
  const Plan p = plan(g);
  const size_t each = carve(p, reinterpret_cast<void*>(uintptr_t{64})).bytes;
  const int64_t panels = ceil_div(g.n, kPanel);
  const double items = static_cast<double>(g.batch), depth = static_cast<double>(max64(g.k, 1));
  const double flops = 2.0 * items * static_cast<double>(g.m) * static_cast<double>(g.n) * depth;
  const double elements = items * depth * static_cast<double>(g.m + g.n);
  const int worth = worth_threads(flops / 150e3 + elements * 4.0 / 40e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kGemmThreads, g.num_threads, worth);
  parallel(threads, [&](int thread, int count) {
    const Buffers buffers = carve(p, static_cast<char*>(g.scratch) + each * static_cast<size_t>(thread));
    const auto run = [&](int64_t item, Range rows, Range columns) {
      if (rows.begin == rows.end || columns.begin == columns.end) return;
      if (p.dots) {
        dot_columns(g, p, buffers, item, columns);
      } else {
        rectangle(g, p, buffers, item, rows, columns);
      }
    };
    // Many products: whole ones to each thread; few: each is shared among all.
    if (g.batch % count == 0 || g.batch >= 4 * count) {
      const Range mine = share(g.batch, thread, count);
      for (int64_t item = mine.begin; item < mine.end; ++item) run(item, {0, p.blocks}, {0, panels});
      return;
    }
    const double row_bytes = 4.0 * depth * kMaxRows, column_bytes = 4.0 * depth * kPanel;
    const Rectangle mine =
        turned_grid(g.knobs, kGemmGrid, p.dots ? 1 : p.blocks, panels, row_bytes, column_bytes, thread, count);
    for (int64_t item = 0; item < g.batch; ++item) run(item, mine.rows, mine.columns);
  });
}

}  // namespace aotpack::kernels
