#include "linear_bf16.h"

#include <limits>

#include "bf16_copy.h"
#include "bf16_epilogue.h"
#include "bf16_product.h"
#include "linear_bf16_tiles.h"
#include "linear_plan.h"

namespace aotpack::kernels {
namespace {

// Of k at a time: so much of a panel stays in the second-level cache, as do several panels of a smaller k.
constexpr int64_t kDepth = 1024;
constexpr int64_t kMostPanels = 64;
constexpr int64_t kBlockBytes = 768 << 10;  // of x that are read again for every group of panels, out of that cache
constexpr int64_t kBlockTiles = 8;          // at least, as panels are paired again for every block
constexpr int64_t kSumRows = 256;           // of a panel, whose sums are kept from one piece of k to the next
constexpr int64_t kFewTiles = kBf16FewRows == kBf16Rows ? 2 : 1;  // up to so many go without paired panels
// Where rows are copied before use: the depth of a piece of k, and the elements between two copies, which keep them in
// different cache sets.
constexpr int64_t kStagedDepth = 512, kStagePad = 32;
constexpr int64_t kEnd = kBf16Step > 1 ? kBf16Step : 2;

class Part {
 public:
  Part(const LinearArgs& g, DType y_dtype, bool padded)
      : g_(g), y_dtype_(y_dtype), whole_(padded ? g.k : g.k / kBf16Step * kBf16Step) {
    const bool clamp = g.act == Act::relu || g.act == Act::relu6;
    fuses_ = kBf16Fuses && y_dtype == DType::bf16 && (clamp || g.act == Act::none);
    finish_.residual_stride = g.residual_stride;
    finish_.clamp = clamp;
    finish_.high = g.act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity();
    finish_.y_stride = g.y_stride;
  }

  void run(Range rows, Range panels) {
    end_ = panel_at(panels.end);
    if (rows.end - rows.begin <= kFewTiles * kBf16FewRows) return few(rows, panels);
    const int64_t depth = max64(min64(g_.k, stages_ ? kStagedDepth : kDepth), 1);
    const int64_t group = min64(kDepth / bf16_padded(depth), kMostPanels);
    int64_t block = rows.end - rows.begin;
    if (group < panels.end - panels.begin) {
      block = max64(kBlockBytes / max64(2 * g_.k, 1) / kBf16Tile, kBlockTiles) * kBf16Tile;
    }
    if (depth < g_.k) block = min64(block, kSumRows / (group * kBf16Tile) * kBf16Tile);
    for (int64_t row = rows.begin; row < rows.end; row += block) {
      const Range some = {row, min64(row + block, rows.end)};
      for (int64_t panel = panels.begin; panel < panels.end; panel += group) {
        int64_t k = 0;
        do {
          multiply(some, {panel, min64(panel + group, panels.end)}, k, min64(depth, g_.k - k));
          k += depth;
        } while (k < g_.k);
      }
    }
  }

 private:
  const bf16* x(int64_t row) const { return static_cast<const bf16*>(g_.x) + row * g_.x_stride; }
  const bf16* panel_at(int64_t panel) const { return static_cast<const bf16*>(g_.w_packed) + panel * g_.k * kPanel; }

  // Elements [k, k + depth) of x with those of the panels.
  void multiply(Range rows, Range panels, int64_t k, int64_t depth) {
    const int64_t padded = bf16_padded(depth), whole = min64(depth, whole_ - k);
    // The first tile of rows pairs the panels while it multiplies them, unless the last row has no partner.
    const bool pairs = kBf16Fuses && depth % kBf16Step == 0;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t i = panel - panels.begin;
      if (!pairs) bf16_split_panel(panel_at(panel) + k * kPanel, depth, paired_ + i * padded * kPanel);
      split_bias(bias_of(panel), g_.n - panel * kPanel, biases_ + i * kPanel);
    }
    const bool begins = k == 0, ends = k + depth == g_.k;
    for (int64_t row = rows.begin; row < rows.end; row += kBf16Tile) {
      const int count = static_cast<int>(min64(kBf16Tile, rows.end - row));
      if (whole < depth) copy_ends(row, count, depth - whole);
      if (stages_ && whole > 0) stage(row, count, k, whole);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const int64_t i = panel - panels.begin;
        float* sums = sums_;
        if (!begins || !ends) sums += ((row - rows.begin) * (panels.end - panels.begin) + i * kBf16Tile) * kPanel;
        Bf16Args a = {};
        a.init = begins ? biases_ + i * kPanel : sums;
        a.init_stride = begins ? 0 : kPanel;
        a.sums = sums;
        a.sums_stride = kPanel;
        a.paired = paired_ + i * padded * kPanel;
        const bool finishes = ends && fuses_ && point_finish(row, panel);
        if (whole > 0 || depth == 0) {
          a.rows = stages_ ? staged_ : x(row) + k;
          a.stride = stages_ ? kStagedDepth + kStagePad : g_.x_stride;
          a.k = bf16_padded(whole);
          // Each tile prefetches another part of the panel that is paired next.
          const bf16* const next = ends ? panel_at(panels.end + i) : panel_at(panel) + (k + depth) * kPanel;
          const int64_t asked = (row - rows.begin) / kBf16Tile * (a.k / kBf16Step) * kBf16Ahead;
          a.ahead = asked < depth * kPanel && asked < end_ - next ? next + asked : nullptr;
          if (finishes && whole == depth) a.finish = &finish_;
          if (pairs && row == rows.begin) {
            a.panel = panel_at(panel) + k * kPanel;
            a.paired_to = paired_ + i * padded * kPanel;
          }
          unit_.multiply(count, a);
          a.init = sums;
          a.init_stride = kPanel;
          a.paired += whole * kPanel;
        }
        if (whole < depth) {
          a.rows = ends_;
          a.stride = a.k = kEnd;
          a.ahead = nullptr;
          a.finish = finishes ? &finish_ : nullptr;
          unit_.multiply(count, a);
        }
        if (ends && !finishes) end_tile(row, count, panel, sums);
      }
    }
  }

  // Points finish_ to a tile of y. Returns false where the panel is not a whole one.
  bool point_finish(int64_t row, int64_t panel) {
    const int64_t column = panel * kPanel;
    if (g_.n - column < kPanel) return false;
    finish_.residual = nullptr;
    if (g_.residual != nullptr) {
      finish_.residual = static_cast<const bf16*>(g_.residual) + row * g_.residual_stride + column;
    }
    finish_.y = static_cast<bf16*>(g_.y) + row * g_.y_stride + column;
    return true;
  }

  // What exceeds whole steps, padded with zeros.
  void copy_ends(int64_t row, int count, int64_t columns) {
    for (int r = 0; r < count; ++r) copy_padded(x(row + r) + whole_, columns, kEnd, ends_ + r * kEnd);
  }

  void stage(int64_t row, int count, int64_t k, int64_t depth) {
    for (int r = 0; r < count; ++r) {
      copy_vectors(x(row + r) + k, depth, depth, staged_ + r * (kStagedDepth + kStagePad));
    }
  }

  void few(Range rows, Range panels) {
    const int64_t all = rows.end - rows.begin, tiles = ceil_div(all, kBf16FewRows);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      split_bias(bias_of(panel), g_.n - panel * kPanel, biases_);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const Range some = share(all, tile, tiles);
        const int64_t row = rows.begin + some.begin;
        const int count = static_cast<int>(some.end - some.begin);
        bf16_few_rows(count, x(row), g_.x_stride, g_.k, panel_at(panel), biases_, sums_);
        end_tile(row, count, panel, sums_);
      }
    }
  }

  const bf16* bias_of(int64_t panel) const {
    return g_.bias == nullptr ? nullptr : static_cast<const bf16*>(g_.bias) + panel * kPanel;
  }

  void end_tile(int64_t row, int count, int64_t panel, const float* sums) {
    const int64_t column = panel * kPanel;
    const void* residual = advance(g_.residual, row * g_.residual_stride + column, g_.dtype);
    finish_split(sums, count, min64(kPanel, g_.n - column), static_cast<const bf16*>(residual), g_.residual_stride,
                 g_.act, y_dtype_, advance(g_.y, row * g_.y_stride + column, y_dtype_), g_.y_stride);
  }

  const LinearArgs& g_;
  const DType y_dtype_;
  const int64_t whole_;        // of k: what is read where it lies
  const bf16* end_ = nullptr;  // of the panels of this part
  // Rows a multiple of a page apart evict each other from the first-level cache, so they are copied.
  const bool stages_ = kBf16Fuses && g_.k >= kStagedDepth && g_.x_stride * 2 % 4096 == 0;
  bool fuses_;  // the epilogue is applied in registers
  Bf16Finish finish_ = {};
  Bf16Unit unit_;
  alignas(64) float biases_[kMostPanels * kPanel];
  alignas(64) bf16 paired_[kDepth * kPanel];
  alignas(64) bf16 staged_[kBf16Fuses ? kBf16Tile * (kStagedDepth + kStagePad) : 1];
  alignas(64) bf16 ends_[kBf16Tile * kEnd];
  alignas(64) float sums_[kSumRows * kPanel];
};

}  // namespace

bool linear_takes_bf16(DType dtype) { return kBf16Rows > 0 && dtype == DType::bf16 && bf16_works(); }

void linear_bf16(const LinearArgs& g, DType y_dtype) {
  const double depth = static_cast<double>(max64(g.k, 1)), columns = static_cast<double>(g.n);
  const double mnk = static_cast<double>(g.m) * columns * depth;
  const int worth = worth_threads(2.0 * mnk / kBf16Speed + columns * depth * 2.0 / 40e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kLinearThreads, g.num_threads, worth);
  const int64_t tiles = ceil_div(g.m, kBf16Tile), panels = ceil_div(g.n, kPanel);
  const double row_bytes = 2.0 * depth * kBf16Tile, column_bytes = 2.0 * depth * kPanel;
  Pieces pieces(threads, 2.0 * mnk / kBf16Speed);
  const Weights next = kBf16Rows > 16 ? weights_after(g.w_packed, 2 * panels * g.k * kPanel) : Weights{};
  parallel(threads, [&](int thread, int count) {
    pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) {
      const Rectangle all = turned_grid(g.knobs, kLinearGrid, tiles, panels, row_bytes, column_bytes, part, count);
      const Rectangle mine = piece_of(all, piece, of, row_bytes, column_bytes);
      const Range rows = {mine.rows.begin * kBf16Tile, min64(mine.rows.end * kBf16Tile, g.m)};
      if (rows.begin < rows.end && mine.columns.begin < mine.columns.end) {
        linear_bf16_part(g, y_dtype, rows, mine.columns, false,
                         piece + 1 == of ? share_ahead(next, part, count) : Weights{});
      }
    });
  });
}

void linear_bf16_part(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded,
                      const Weights& next) {
  if constexpr (kBf16Rows > 16) {
    if (rows.end - rows.begin > kFewTiles * kBf16FewRows)
      return linear_bf16_tiles(args, y_dtype, rows, panels, padded, next);
  }
  if constexpr (kBf16Rows > 0) Part(args, y_dtype, padded).run(rows, panels);
}

}  // namespace aotpack::kernels
