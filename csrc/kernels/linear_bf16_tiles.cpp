// A step of tiles (32 x 32 sums, 32 of k) takes 64 cycles and few instructions. What is read in it should be 2 KB of
// the weight, which lie together and come out of the second-level cache in time, and 2 KB of x, which lie apart and do
// not: they are to be in the first-level cache, so that a tile of rows is multiplied with a group of panels before the
// next. And everything else is done beside the steps, a little in each: the weight is paired (bf16_split_panel) by the
// first tile of rows, the next group is asked for by the others, and a tile gets its epilogue during the one after it.
#include "linear_bf16_tiles.h"

#include <limits>

#include "bf16_copy.h"
#include "bf16_epilogue.h"
#include "bf16_product.h"
#include "bf16_split.h"

#if defined(__AMX_BF16__)

#include "amx.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kTile = 2 * kHalfTile, kStep = 32;
static_assert(kBf16Tile == kTile && kBf16Step == kStep);

constexpr int64_t kPiece = 512;           // of k at a time: rows of a tile stay in the first-level cache
constexpr int64_t kPairedRows = 3072;     // of panels, at a time
constexpr int64_t kPartialSums = 768;     // rows of panels whose sums are kept from one piece of k to the next
constexpr int64_t kMostRows = 256;        // of those
constexpr int64_t kBlockBytes = 1 << 20;  // of x, which is read for every group, out of the second-level cache
constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
constexpr int64_t kLead = 2;  // steps by which pairs are ahead of the product that reads them

class Part {
 public:
  Part(const LinearArgs& g, DType y_dtype, bool padded, const Weights& next, const Bf16Windows* windows)
      : g_(g),
        y_dtype_(y_dtype),
        next_(next),
        whole_(padded ? bf16_padded(g.k) : g.k / kStep * kStep),
        windows_(windows),
        rows_(windows == nullptr ? TileRows::matrix(g.m, kEndless, kEndless, g.x_stride) : windows->rows) {}

  void run(Range rows, Range panels) {
    const int64_t steps = ceil_div(g_.k, kStep), count = rows.end - rows.begin;
    if (windows_ == nullptr) {
      pieces_ = max64(ceil_div(steps, kPiece / kStep), 1);
      piece_ = ceil_div(steps, pieces_) * kStep;
    } else {
      piece_ = windows_->run * windows_->together;
      pieces_ = ceil_div(g_.k, piece_);
    }
    int64_t group = kPairedRows / max64(piece_, kStep), block = count;
    if (pieces_ > 1) {
      block = round_up(ceil_div(count, ceil_div(count, kMostRows)), kTile);
      group = min64(group, kPartialSums / block);
    } else if (group < panels.end - panels.begin) {
      // Windows share what they read.
      const int64_t row_bytes = 2 * (windows_ == nullptr ? g_.k : rows_.row);
      block = max64(kBlockBytes / max64(row_bytes, 1) / kTile, 4) * kTile;
    }
    first_row_ = rows.begin;
    for (int64_t row = rows.begin; row < rows.end; row += block) {
      const Range some = {row, min64(row + block, rows.end)};
      for (int64_t panel = panels.begin; panel < panels.end; panel += group) {
        const Range mine = {panel, min64(panel + group, panels.end)};
        for (int64_t piece = 0; piece < pieces_; ++piece) {
          // Next are other elements of the same panels, or other panels.
          const bool same = piece + 1 < pieces_;
          ahead_ = {this, same ? mine : Range{mine.end, min64(mine.end + group, panels.end)}, same ? piece + 1 : 0};
          asks_next_ = !same && mine.end == panels.end && some.end == rows.end;
          next_at_ = next_.data;
          multiply(some, mine, piece);
        }
      }
    }
    finish_all();
    if (configured_) _tile_release();
  }

 private:
  // Goes through a piece of the weight, panel by panel, as it lies in memory.
  class Walk {
   public:
    Walk() = default;
    Walk(const Part* part, Range panels, int64_t piece) : part_(part), panel_(panels.begin), end_(panels.end) {
      k_ = piece * part->piece_;
      depth_ = min64(part->piece_, part->g_.k - k_);
      if (depth_ <= 0) panel_ = end_;
      begin_panel();
    }
    bool is_done() const { return panel_ >= end_; }
    const bf16* at() const { return at_; }
    int64_t left() const { return left_; }  // rows of the panel
    void next(int64_t rows) {
      at_ += rows * kPanel;
      left_ -= rows;
      if (left_ <= 0) ++panel_, begin_panel();
    }

   private:
    void begin_panel() {
      if (is_done()) return;
      at_ = static_cast<const bf16*>(part_->g_.w_packed) + (panel_ * part_->g_.k + k_) * kPanel;
      left_ = depth_;
    }
    const Part* part_ = nullptr;
    int64_t panel_ = 0, end_ = 0, k_ = 0, depth_ = 0, left_ = 0;
    const bf16* at_ = nullptr;
  };

  const bf16* x(int64_t row) const { return static_cast<const bf16*>(g_.x) + rows_.place(row); }

  // ---- beside the steps ------------------------------------------------------------------------------------------

  // A step of the weight, the last one of a panel padded with zeros.
  void pair() {
    if (pairs_.is_done()) return;
    const int64_t rows = min64(kStep, pairs_.left());
    const bf16* from = pairs_.at();
    bf16* to = pair_to_;
    if (rows == kStep) {
      for (int64_t i = 0; i < kStep; i += 2, from += 2 * kPanel, to += 2 * kPanel) {
        const Pairs pairs = split(load_halves(from), load_halves(from + kPanel));
        store_halves(to, pairs.low);
        store_halves(to + kPanel, pairs.high);
      }
    } else {
      bf16_split_panel(from, rows, to);
    }
    pair_to_ += kStep * kPanel;
    pairs_.next(rows);
  }

  // Asks for some rows of the next group in the second-level cache.
  void ask() {
    constexpr int64_t kRows = 8;
    if (asks_next_) return ask_next();
    if (ahead_.is_done()) return;
    AOTPACK_UNROLL
    for (int64_t i = 0; i < kRows; ++i) __builtin_prefetch(ahead_.at() + i * kPanel, 0, 2);
    ahead_.next(kRows);
  }

  void ask_next() {
    constexpr int64_t kLines = 8, kLine = 64;
    if (next_at_ >= next_.data + next_.bytes) return;
    AOTPACK_UNROLL
    for (int64_t i = 0; i < kLines; ++i) __builtin_prefetch(next_at_ + i * kLine, 0, 2);
    next_at_ += kLines * kLine;
  }

  // `count` outputs of the tile before.
  void finish(int64_t count) {
    pending_.take(count, [&](const TileOutputs::Run& run) {
      const bf16* residual = end_residual_ == nullptr ? nullptr : end_residual_ + run.pixel * g_.residual_stride;
      finish_split(end_sums_ + run.row * kPanel, run.count, end_columns_, residual, g_.residual_stride, g_.act,
                   y_dtype_, advance(end_y_, run.pixel * g_.y_stride, y_dtype_), g_.y_stride);
    });
  }
  void finish_all() { finish(pending_.left()); }

  void begin_finish(const TileOutputs& outputs, int64_t panel, const float* sums) {
    finish_all();
    const int64_t column = panel * kPanel;
    pending_ = PendingOutputs(outputs);
    end_sums_ = sums;
    end_columns_ = min64(kPanel, g_.n - column);
    end_residual_ = g_.residual == nullptr ? nullptr : static_cast<const bf16*>(g_.residual) + column;
    end_y_ = advance(g_.y, column, y_dtype_);
  }

  // ---- steps -----------------------------------------------------------------------------------------------------

  void multiply(Range rows, Range panels, int64_t piece) {
    const int64_t k = piece * piece_, depth = min64(piece_, g_.k - k), steps = ceil_div(depth, kStep);
    const int64_t tiles = ceil_div(rows.end - rows.begin, kTile), group = panels.end - panels.begin;
    const bool begins = piece == 0, ends = piece + 1 == pieces_;
    pairs_ = {this, panels, piece};
    pair_to_ = paired_;
    for (int64_t i = 0; i < kLead; ++i) pair();
    ends_of_step_ = ceil_div(kTile, max64(steps, 1));
    for (int64_t i = 0; begins && i < group; ++i) {
      const int64_t column = (panels.begin + i) * kPanel;
      const bf16* bias = static_cast<const bf16*>(g_.bias);
      split_bias(bias == nullptr ? nullptr : bias + column, g_.n - column, biases_ + i * kPanel);
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles are configured once: the last one has the number of rows of another, the first of which are computed
      // twice.
      const int64_t begin = rows.begin + tile * kTile, left = min64(kTile, rows.end - begin);
      const bool is_short = rows_.half == 0 && left < kTile && begin > first_row_;
      const int count = static_cast<int>(!is_short ? left : left > kHalfTile ? kTile : kHalfTile);
      const int64_t before = count - left, row = begin - before;
      if (!configured_) configure(count);
      if (whole_ < k + depth) copy_ends(row, count);
      // Not those of the tile before, which are ended during the steps of this one.
      TileOutputs& outputs = outputs_[which_outputs_ = 1 - which_outputs_];
      if (ends) rows_.outputs(begin, left, before, &outputs);
      for (int64_t i = 0; i < group; ++i) {
        // Not those of the tile before, which are read during these steps.
        place_ = 1 - place_;
        float* const sums = sums_ + (pieces_ > 1 ? tile * group + i : place_) * kTile * kPanel;
        const bf16* const paired = paired_ + i * steps * kStep * kPanel;
        const float* init = begins ? biases_ + i * kPanel : sums;
        if (count > kHalfTile) {
          sum<true>(row, k, depth, paired, init, begins ? 0 : kPanel, sums, tile == 0);
        } else {
          sum<false>(row, k, depth, paired, init, begins ? 0 : kPanel, sums, tile == 0);
        }
        if (ends) {
          begin_finish(outputs, panels.begin + i, sums);
        } else {
          finish_all();
        }
      }
    }
  }

  void configure(int count) {
    const int half = static_cast<int>(rows_.half);
    half > 0 ? amx_configure(half, half) : amx_configure(count);
    configured_ = true;
  }

  // What exceeds whole steps, padded with zeros.
  void copy_ends(int64_t row, int count) {
    for (int r = 0; r < count; ++r) copy_padded(x(row + r) + whole_, g_.k - whole_, kStep, ends_ + r * kStep);
  }

  template <bool both>
  void sum(int64_t row, int64_t k, int64_t depth, const bf16* b, const float* init, int64_t init_stride, float* sums,
           bool is_first) {
    init_stride *= static_cast<int64_t>(sizeof(float));
    constexpr int64_t kSumsStride = kPanel * sizeof(float);
    const float* later = init + (init_stride == 0 ? 0 : 16 * kPanel);
    order_memory();
    _tile_loadd(0, init, init_stride);
    _tile_loadd(1, init + 16, init_stride);
    if constexpr (both) {
      _tile_loadd(2, later, init_stride);
      _tile_loadd(3, later + 16, init_stride);
    }
    if (windows_ != nullptr) {
      const int64_t run = windows_->run, *offset = windows_->offsets + k / run;
      const bf16 *first = x(row), *second = both ? x(row + kHalfTile) : first;
      for (int64_t done = 0; done < depth; done += run, ++offset) {
        steps<both>(first + *offset, second + *offset, rows_.row, run / kStep, b + done * kPanel, is_first);
      }
    } else {
      const int64_t whole = max64(0, min64(depth, whole_ - k));
      const bf16* rows = x(row) + k;
      steps<both>(rows, rows + kHalfTile * rows_.row, rows_.row, ceil_div(whole, kStep), b, is_first);
      if (whole < depth) steps<both>(ends_, ends_ + kHalfTile * kStep, kStep, 1, b + whole * kPanel, is_first);
    }
    _tile_stored(0, sums, kSumsStride);
    _tile_stored(1, sums + 16, kSumsStride);
    if constexpr (both) {
      _tile_stored(2, sums + 16 * kPanel, kSumsStride);
      _tile_stored(3, sums + 16 * kPanel + 16, kSumsStride);
    }
    order_memory();
  }

  template <bool both>
  void steps(const bf16* a, const bf16* a_later, int64_t stride, int64_t count, const bf16* b, bool is_first) {
    constexpr int64_t kBytes = 2, kBStride = 2 * kPanel * kBytes;
    const int64_t a_stride = stride * kBytes;
    for (; count > 0; --count, a += kStep, a_later += kStep, b += kStep * kPanel) {
      _tile_loadd(4, b, kBStride);
      _tile_loadd(6, a, a_stride);
      _tile_loadd(5, b + kPanel, kBStride);
      _tile_dpbf16ps(0, 6, 4);
      if constexpr (both) _tile_loadd(7, a_later, a_stride);
      _tile_dpbf16ps(1, 6, 5);
      if constexpr (both) {
        _tile_dpbf16ps(2, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
      }
      if (is_first) {
        pair();
      } else {
        ask();
      }
      if (pending_.left() > 0) finish(ends_of_step_);
    }
  }

  const LinearArgs& g_;
  const DType y_dtype_;
  const Weights next_;
  const int64_t whole_;  // of k: what is read where it lies
  const Bf16Windows* const windows_;
  const TileRows rows_;
  int64_t pieces_ = 1, piece_ = kStep;  // of k: how many, and of how many elements
  int64_t first_row_ = 0;
  bool configured_ = false;
  int64_t place_ = 0;

  Walk pairs_, ahead_;
  bool asks_next_ = false;
  const char* next_at_ = nullptr;
  bf16* pair_to_ = nullptr;
  const float* end_sums_ = nullptr;
  const bf16* end_residual_ = nullptr;
  void* end_y_ = nullptr;
  int64_t end_columns_ = 0, ends_of_step_ = kTile;
  TileOutputs outputs_[2];
  int which_outputs_ = 0;
  PendingOutputs pending_;

  alignas(64) float biases_[kPairedRows / kStep * kPanel];
  alignas(64) bf16 paired_[kPairedRows * kPanel];
  alignas(64) float sums_[kPartialSums * kPanel];
  alignas(64) bf16 ends_[kTile * kStep];
};

}  // namespace

void linear_bf16_tiles(const LinearArgs& g, DType y_dtype, Range rows, Range panels, bool padded, const Weights& next,
                       const Bf16Windows* windows) {
  Part(g, y_dtype, padded, next, windows).run(rows, panels);
}

}  // namespace aotpack::kernels

#else

namespace aotpack::kernels {

// Never called: the target has no tiles.
void linear_bf16_tiles(const LinearArgs&, DType, Range, Range, bool, const Weights&, const Bf16Windows*) {}

}  // namespace aotpack::kernels

#endif
