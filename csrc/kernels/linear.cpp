#include "linear.h"

#include "epilogue.h"
#include "linear_bf16.h"
#include "linear_plan.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kStageStride = kWholeDepth + 16;  // not a multiple of a page: rows fall into different cache sets

// The tiles of one thread.
class Block {
 public:
  Block(const LinearArgs& g, DType y_dtype, Shares tiles, Rectangle mine)
      : g_(g),
        y_dtype_(y_dtype),
        tiles_(tiles),
        mine_(mine),
        p_(linear_plan(g, y_dtype, mine.rows.end - mine.rows.begin, mine.columns.end - mine.columns.begin)),
        streams_(y_dtype == DType::f32 && streams(g.y, g.y_stride, g.m * g.n, g.act)),
        asks_x_(g.dtype == DType::f32 && g.m * g.k * 4 >= kAheadBytes),
        asks_y_(g.dtype == DType::f32 && g.m * g.n * 4 >= kAheadBytes) {}

  void run() {
    for (int64_t panel = mine_.columns.begin; panel < mine_.columns.end; panel += p_.panels) {
      const Range panels = {panel, min64(panel + p_.panels, mine_.columns.end)};
      for (int64_t p = panels.begin; p < panels.end; ++p) {
        panel_bias(advance(g_.bias, p * kPanel, g_.dtype), g_.dtype, g_.n - p * kPanel, bias_[p - panel]);
      }
      for (int64_t tile = mine_.rows.begin; tile < mine_.rows.end; tile += p_.tiles) {
        const Range tiles = {tile, min64(tile + p_.tiles, mine_.rows.end)};
        int64_t k = 0;
        do {
          for (int64_t t = tiles.begin; t < tiles.end; ++t) multiply(t, t - tiles.begin, panels, k);
          k += p_.depth;
        } while (k < g_.k);
      }
    }
    if (streams_) end_of_streams();
  }

 private:
  // One tile of rows with the panels, from k on; `slot` is where its partial sums are kept.
  void multiply(int64_t tile, int64_t slot, Range panels, int64_t k) {
    const Range rows = tiles_[tile];
    const int count = static_cast<int>(rows.end - rows.begin);
    const int64_t depth = min64(p_.depth, g_.k - k);
    const void* x = advance(g_.x, rows.begin * g_.x_stride + k, g_.dtype);
    const float* pointers[kMaxRows];
    if (p_.stage) widen_rows(x, g_.x_stride, g_.dtype, count, depth, staged_, kStageStride);
    for (int r = 0; r < count; ++r) {
      pointers[r] = p_.stage ? staged_ + r * kStageStride : static_cast<const float*>(x) + r * g_.x_stride;
    }
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t column = panel * kPanel;
      MicroArgs m = {};
      m.rows = pointers;
      m.row_step = p_.stage ? kStageStride : g_.x_stride;
      m.taps = 1;
      m.k = depth;
      m.b = advance(g_.w_packed, (panel * g_.k + k) * kPanel, g_.dtype);
      m.b_stride = kPanel;
      m.columns = static_cast<int>(min64(kPanel, g_.n - column));
      Ahead ahead[3];
      m.ahead = ahead;
      if (asks_x_ || asks_y_) m.ahead_count = look_ahead(tile + 1, k, depth, panels, panel, ahead);
      if (k == 0) m.init = bias_[panel - panels.begin];
      void* y = advance(g_.y, rows.begin * g_.y_stride + column, y_dtype_);
      const void* residual = advance(g_.residual, rows.begin * g_.residual_stride + column, g_.dtype);
      if (y_dtype_ == DType::f32) {
        // Sums of earlier pieces wait in y; the residual goes with the first one.
        const bool first = k == 0, last = k + depth >= g_.k;
        m.stream = last && streams_;
        micro_finish(g_.dtype, count, m, y_dtype_, first ? residual : y, first ? g_.residual_stride : g_.y_stride,
                     last ? g_.act : Act::none, y, g_.y_stride);
        continue;
      }
      if (depth >= g_.k) {
        micro_finish(g_.dtype, count, m, y_dtype_, residual, g_.residual_stride, g_.act, y, g_.y_stride);
        continue;
      }
      float* sums = partial_ + (slot * kPartialPanels + panel - panels.begin) * kMaxRows * kPanel;
      const int64_t columns = m.columns;
      m.columns = static_cast<int>(kPanel);
      m.residual = k == 0 ? nullptr : sums;
      m.residual_stride = kPanel;
      m.y = sums;
      m.y_stride = kPanel;
      micro(g_.dtype, count, m);
      if (k + depth >= g_.k) {
        finish(sums, kPanel, count, columns, y_dtype_, residual, g_.residual_stride, g_.act, y, g_.y_stride);
      }
    }
  }

  // Pieces of a tile: of `panels` parts of its x the panel-th, and the panel's own of its other operands. Returns how
  // many they are.
  int look_ahead(int64_t tile, int64_t k, int64_t depth, Range panels, int64_t panel, Ahead* to) const {
    int count = 0;
    if (tile >= mine_.rows.end) return 0;
    const Range rows = tiles_[tile];
    const auto add = [&](const void* base, int64_t stride, Range columns) {
      const char* const at = static_cast<const char*>(base) + (rows.begin * stride + columns.begin) * 4;
      to[count++] = {at, (columns.end - columns.begin) * 4, stride * 4, static_cast<int>(rows.end - rows.begin)};
    };
    const Range own = {panel * kPanel, min64((panel + 1) * kPanel, g_.n)};
    if (asks_y_ && g_.residual != nullptr) add(g_.residual, g_.residual_stride, own);
    if (asks_y_ && !streams_) add(g_.y, g_.y_stride, own);
    if (asks_x_) {
      const Range part = share(depth, panel - panels.begin, panels.end - panels.begin);
      if (part.begin < part.end) add(g_.x, g_.x_stride, {k + part.begin, k + part.end});
    }
    return count;
  }

  const LinearArgs& g_;
  const DType y_dtype_;
  const Shares tiles_;  // of the rows
  const Rectangle mine_;
  const LinearPlan p_;
  const bool streams_, asks_x_, asks_y_;
  alignas(64) float bias_[kMostPanels][kPanel];
  alignas(64) float staged_[kMaxRows * kStageStride];
  alignas(64) float partial_[kReuse / 4 * kMaxRows * kPartialPanels * kPanel];
};

void run(const LinearArgs& g, DType y_dtype) {
  if (g.m <= 0 || g.n <= 0) return;
  if (linear_takes_bf16(g.dtype)) return linear_bf16(g, y_dtype);
  const double element = static_cast<double>(dtype_size(g.dtype)), depth = static_cast<double>(max64(g.k, 1));
  const double columns = static_cast<double>(g.n), mnk = static_cast<double>(g.m) * columns * depth;
  const int worth = worth_threads(2.0 * mnk / 200e3 + columns * depth * element / 40e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kLinearThreads, g.num_threads, worth);
  const int64_t tiles = row_tiles(g.m), panels = ceil_div(g.n, kPanel);
  const double row_bytes = element * depth * kMaxRows, column_bytes = element * depth * kPanel;
  const Shares shares(g.m, tiles);
  const bool stages = linear_plan(g, y_dtype, tiles, panels).stage;
  const double piece_row_bytes = (stages ? kStagedReads : 1.0) * row_bytes;
  Pieces pieces(threads, 2.0 * mnk / 100e3);
  parallel(threads, [&](int thread, int count) {
    pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) {
      const Rectangle all = turned_grid(g.knobs, kLinearGrid, tiles, panels, row_bytes, column_bytes, part, count);
      const Rectangle mine = piece_of(all, piece, of, piece_row_bytes, column_bytes);
      if (mine.rows.begin < mine.rows.end && mine.columns.begin < mine.columns.end) {
        Block(g, y_dtype, shares, mine).run();
      }
    });
  });
}

}  // namespace

KnobSizes linear_knobs(const LinearArgs& g) {
  const bool is_shared = g.num_threads > 1;
  return {static_cast<uint8_t>(g.k > kLinearDepths.front() ? kLinearDepths.size() + 1 : 1),
          static_cast<uint8_t>(g.n > kPanel ? kLinearPanelBytes.size() + 1 : 1),
          is_shared ? kGridPositions : uint8_t{1}, static_cast<uint8_t>(g.dtype == DType::f32 ? 2 : 1),
          is_shared ? kThreadPositions : uint8_t{1}};
}

void linear(const LinearArgs& args) { run(args, args.dtype); }
void linear_to_float(const LinearArgs& args) { run(args, DType::f32); }

}  // namespace aotpack::kernels
