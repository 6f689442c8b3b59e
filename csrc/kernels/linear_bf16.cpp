#include "linear_bf16.h"

#include "bf16_product.h"
#include "epilogue.h"
#include "linear_plan.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kDepth = 512;             // of k at a time: so much of a panel stays in the nearest cache
constexpr int64_t kBlockRows = 512;         // that share a paired panel where sums or ends of rows are kept
constexpr int64_t kBlockBytes = 768 << 10;  // of x that are read again for every panel, out of the second-level cache
constexpr int64_t kFewTiles = kBf16FewRows == kBf16Rows ? 2 : 1;  // up to so many go without paired panels
constexpr int64_t kEnd = kBf16Step > 1 ? kBf16Step : 2;

class Part {
 public:
  Part(const LinearArgs& g, DType y_dtype, bool padded)
      : g_(g), y_dtype_(y_dtype), whole_(padded ? g.k : g.k / kBf16Step * kBf16Step) {}

  void run(Range rows, Range panels) {
    if (rows.end - rows.begin <= kFewTiles * kBf16FewRows) return few(rows, panels);
    int64_t block = max64(kBf16Tile, kBlockBytes / max64(2 * g_.k, 1) / kBf16Tile * kBf16Tile);
    if (g_.k > kDepth || whole_ < g_.k) block = min64(block, kBlockRows);
    for (int64_t row = rows.begin; row < rows.end; row += block) {
      const Range some = {row, min64(row + block, rows.end)};
      copy_ends(some);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) multiply(some, panel);
    }
  }

 private:
  const bf16* x(int64_t row) const { return static_cast<const bf16*>(g_.x) + row * g_.x_stride; }
  const bf16* panel_at(int64_t panel) const { return static_cast<const bf16*>(g_.w_packed) + panel * g_.k * kPanel; }

  // What exceeds whole steps, padded with zeros.
  void copy_ends(Range rows) {
    if (whole_ == g_.k) return;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      bf16* end = ends_ + (r - rows.begin) * kEnd;
      std::memset(end, 0, kEnd * sizeof(bf16));
      std::memcpy(end, x(r) + whole_, static_cast<size_t>(g_.k - whole_) * sizeof(bf16));
    }
  }

  void multiply(Range rows, int64_t panel) {
    panel_bias(advance(g_.bias, panel * kPanel, g_.dtype), g_.dtype, g_.n - panel * kPanel, bias_);
    const bool together = g_.k <= kDepth && whole_ == g_.k;
    int64_t k = 0;
    do {
      const bool ending = k == whole_;
      const int64_t depth = ending ? g_.k - k : min64(kDepth, whole_ - k);
      bf16_pair_panel(panel_at(panel) + k * kPanel, kPanel, kPanel, depth, paired_);
      const bool last = k + depth >= g_.k;
      // The next piece lies behind this one.
      const bf16 *ahead = panel_at(panel) + (k + depth) * kPanel, *const enough = ahead + depth * kPanel;
      for (int64_t row = rows.begin; row < rows.end; row += kBf16Tile) {
        const int count = static_cast<int>(min64(kBf16Tile, rows.end - row));
        float* sums = together ? sums_ : sums_ + (row - rows.begin) * kPanel;
        Bf16Args a = {};
        a.rows = ending ? ends_ + (row - rows.begin) * kEnd : x(row) + k;
        a.stride = ending ? kEnd : g_.x_stride;
        a.k = bf16_padded(depth);
        a.paired = paired_;
        a.init = k == 0 ? bias_ : sums;
        a.init_stride = k == 0 ? 0 : kPanel;
        a.sums = sums;
        a.sums_stride = kPanel;
        a.ahead = ahead < enough ? ahead : nullptr;
        unit_.multiply(count, a);
        ahead += a.k / kBf16Step * kBf16Ahead;
        if (last) end_tile(row, count, panel, sums);
      }
      k += depth;
    } while (k < g_.k);
  }

  void few(Range rows, Range panels) {
    const int64_t all = rows.end - rows.begin, tiles = ceil_div(all, kBf16FewRows);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      panel_bias(advance(g_.bias, panel * kPanel, g_.dtype), g_.dtype, g_.n - panel * kPanel, bias_);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const Range some = share(all, tile, tiles);
        const int64_t row = rows.begin + some.begin;
        const int count = static_cast<int>(some.end - some.begin);
        bf16_few_rows(count, x(row), g_.x_stride, g_.k, panel_at(panel), bias_, sums_);
        end_tile(row, count, panel, sums_);
      }
    }
  }

  void end_tile(int64_t row, int count, int64_t panel, const float* sums) {
    const int64_t column = panel * kPanel;
    finish(sums, kPanel, count, min64(kPanel, g_.n - column), y_dtype_,
           advance(g_.residual, row * g_.residual_stride + column, g_.dtype), g_.residual_stride, g_.act,
           advance(g_.y, row * g_.y_stride + column, y_dtype_), g_.y_stride);
  }

  const LinearArgs& g_;
  const DType y_dtype_;
  const int64_t whole_;  // of k: what is read where it lies
  Bf16Unit unit_;
  alignas(64) float bias_[kPanel];
  alignas(64) bf16 paired_[kDepth * kPanel];
  alignas(64) bf16 ends_[kBlockRows * kEnd];
  alignas(64) float sums_[kBlockRows * kPanel];
};

}  // namespace

bool linear_takes_bf16(DType dtype) { return kBf16Rows > 0 && dtype == DType::bf16 && bf16_works(); }

void linear_bf16(const LinearArgs& g, DType y_dtype) {
  const double depth = static_cast<double>(max64(g.k, 1)), columns = static_cast<double>(g.n);
  const double mnk = static_cast<double>(g.m) * columns * depth;
  const int worth = worth_threads(2.0 * mnk / kBf16Speed + columns * depth * 2.0 / 40e3, g.num_threads);
  const int threads = turned_threads(g.knobs, kLinearThreads, g.num_threads, worth);
  const int64_t tiles = ceil_div(g.m, kBf16Tile), panels = ceil_div(g.n, kPanel);
  parallel(threads, [&](int thread, int count) {
    const Rectangle mine =
        turned_grid(g.knobs, kLinearGrid, tiles, panels, 2.0 * depth * kBf16Tile, 2.0 * depth * kPanel, thread, count);
    const Range rows = {mine.rows.begin * kBf16Tile, min64(mine.rows.end * kBf16Tile, g.m)};
    if (rows.begin < rows.end && mine.columns.begin < mine.columns.end) {
      linear_bf16_part(g, y_dtype, rows, mine.columns);
    }
  });
}

void linear_bf16_part(const LinearArgs& args, DType y_dtype, Range rows, Range panels, bool padded) {
  if constexpr (kBf16Rows > 0) Part(args, y_dtype, padded).run(rows, panels);
}

}  // namespace aotpack::kernels
