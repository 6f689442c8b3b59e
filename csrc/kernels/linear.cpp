#include "linear.h"

#include "epilogue.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kStageDepth = 1024;               // floats of a row that are staged at once
constexpr int64_t kStageStride = kStageDepth + 16;  // not a multiple of a page: rows fall into different cache sets
constexpr int64_t kMaxPanels = 8;                   // panels that share a staged block of rows
constexpr int64_t kTileBlocks = 4;          // row tiles whose partial sums are kept while B's panels are in the cache
constexpr int64_t kPanelBytes = 512 << 10;  // of B, so that they stay in the second-level cache
constexpr int64_t kDirectDepth = 4096;      // up to here sums stay in registers over all of k

struct Plan {
  bool stage;      // rows are copied (and widened) before use
  int64_t depth;   // of k at a time
  int64_t panels;  // at a time
};

Plan plan(const LinearArgs& g, int64_t blocks, int64_t panels) {
  Plan p;
  // Rows a multiple of 2 KiB apart evict each other from a set-associative cache.
  const bool aliasing = g.m > 4 && g.k >= 256 && (g.x_stride * 4) % 2048 == 0;
  p.stage = g.dtype != DType::f32 || aliasing;
  p.depth = p.stage ? kStageDepth : blocks > 1 ? kDirectDepth : g.k;
  if (g.k <= p.depth) {
    p.depth = max64(g.k, 1);
  } else {  // equal pieces
    p.depth = round_up(ceil_div(g.k, ceil_div(g.k, p.depth)), 16);
  }
  const int64_t bytes = p.depth * kPanel * static_cast<int64_t>(dtype_size(g.dtype));
  p.panels = max64(1, min64(min64(panels, kMaxPanels), kPanelBytes / bytes));
  return p;
}

void rectangle(const LinearArgs& g, DType y_dtype, int64_t blocks, Range block_range, Range panel_range) {
  const Plan p = plan(g, block_range.end - block_range.begin, panel_range.end - panel_range.begin);
  const int64_t chunks = max64(1, ceil_div(g.k, p.depth));
  alignas(64) float staged[kMaxRows * kStageStride];
  alignas(64) float partial[kTileBlocks * kMaxRows * kMaxPanels * kPanel];
  alignas(64) float bias[kMaxPanels][kPanel];
  const int64_t super = chunks > 1 ? kTileBlocks : blocks;

  for (int64_t panel = panel_range.begin; panel < panel_range.end; panel += p.panels) {
    const int64_t group = min64(p.panels, panel_range.end - panel);
    for (int64_t j = 0; j < group; ++j) {
      const int64_t column = (panel + j) * kPanel;
      panel_bias(advance(g.bias, column, g.dtype), g.dtype, g.n - column, bias[j]);
    }
    for (int64_t first = block_range.begin; first < block_range.end; first += super) {
      const int64_t last = min64(first + super, block_range.end);
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t k0 = chunk * p.depth, depth = min64(p.depth, g.k - k0);
        for (int64_t block = first; block < last; ++block) {
          const Range rows = share(g.m, block, blocks);
          const int count = static_cast<int>(rows.end - rows.begin);
          const float* pointers[kMaxRows];
          const void* x = advance(g.x, rows.begin * g.x_stride + k0, g.dtype);
          if (p.stage) widen_rows(x, g.x_stride, g.dtype, count, depth, staged, kStageStride);
          for (int r = 0; r < count; ++r) {
            pointers[r] = p.stage ? staged + r * kStageStride : static_cast<const float*>(x) + r * g.x_stride;
          }
          for (int64_t j = 0; j < group; ++j) {
            const int64_t column = (panel + j) * kPanel;
            float* sums = partial + ((block - first) * kMaxPanels + j) * kMaxRows * kPanel;
            MicroArgs tile = {};
            tile.rows = pointers;
            tile.taps = 1;
            tile.k = depth;
            tile.b = advance(g.w_packed, ((panel + j) * g.k + k0) * kPanel, g.dtype);
            tile.b_stride = kPanel;
            tile.init = chunk == 0 ? bias[j] : sums;
            tile.init_stride = chunk == 0 ? 0 : kPanel;
            tile.columns = static_cast<int>(min64(kPanel, g.n - column));
            if (chunk + 1 < chunks) {
              tile.columns = static_cast<int>(kPanel);  // partial sums are kept whole
              tile.y = sums;
              tile.y_stride = kPanel;
              micro(g.dtype, count, tile);
            } else {
              const int64_t at = rows.begin * g.y_stride + column;
              const int64_t residual_at = rows.begin * g.residual_stride + column;
              micro_finish(g.dtype, count, tile, y_dtype, advance(g.residual, residual_at, g.dtype), g.residual_stride,
                           g.act, advance(g.y, at, y_dtype), g.y_stride);
            }
          }
        }
      }
    }
  }
}

void run(const LinearArgs& g, DType y_dtype) {
  if (g.m <= 0 || g.n <= 0) return;
  const double mnk = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(max64(g.k, 1));
  const double bytes = static_cast<double>(g.n) * static_cast<double>(g.k) * static_cast<double>(dtype_size(g.dtype));
  const int threads = worth_threads(2.0 * mnk / 200e3 + bytes / 40e3, g.num_threads);
  const int64_t blocks = row_tiles(g.m), panels = ceil_div(g.n, kPanel);
  const double element = static_cast<double>(dtype_size(g.dtype)), depth = static_cast<double>(g.k);
  const double row_bytes = element * depth * kMaxRows, panel_bytes = element * depth * kPanel;
  parallel(threads, [&](int thread, int count) {
    const Rectangle mine = share_grid(blocks, panels, row_bytes, panel_bytes, thread, count);
    if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) {
      rectangle(g, y_dtype, blocks, mine.rows, mine.columns);
    }
  });
}

}  // namespace

void linear(const LinearArgs& args) { run(args, args.dtype); }
void linear_to_float(const LinearArgs& args) { run(args, DType::f32); }

}  // namespace aotpack::kernels
