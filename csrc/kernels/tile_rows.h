// Windows as the rows of tiles: where they lie, and which of their sums are outputs.
#pragma once

#include "types.h"

namespace aotpack::kernels {

constexpr int64_t kHalfTile = 16;  // rows

// Rows of a tile whose sums are outputs, run by run.
class TileOutputs {
 public:
  struct Run {
    int64_t row, count, pixel;  // row: in the tile; pixel: of the first one
  };

  void clear() { runs_count_ = rows_ = 0; }
  void add(int64_t row, int64_t count, int64_t pixel) {
    if (count <= 0) return;
    runs_[runs_count_++] = {row, count, pixel};
    rows_ += count;
  }
  const Run* runs() const { return runs_; }
  int64_t rows() const { return rows_; }  // of all runs

 private:
  Run runs_[2 * kHalfTile];
  int64_t runs_count_ = 0, rows_ = 0;
};

// What is left of the outputs of a tile, while that is done beside other work.
class PendingOutputs {
 public:
  PendingOutputs() = default;
  explicit PendingOutputs(const TileOutputs& outputs) : run_(outputs.runs()), left_(outputs.rows()) {}

  int64_t left() const { return left_; }
  // Calls `end` with up to `count` rows, as runs.
  template <class F>
  void take(int64_t count, const F& end) {
    count = min64(count, left_);
    left_ -= count;
    while (count > 0) {
      const int64_t some = min64(count, run_->count - done_);
      end(TileOutputs::Run{run_->row + done_, some, run_->pixel + done_});
      done_ += some;
      if (done_ == run_->count) ++run_, done_ = 0;
      count -= some;
    }
  }

 private:
  const TileOutputs::Run* run_ = nullptr;
  int64_t done_ = 0, left_ = 0;
};

// The windows of an image. Where they lie a pixel apart, they are the rows of a matrix: `line` for each line of
// outputs, of which the first `used` are outputs. Where they lie further apart, half a tile has `half` rows of a line,
// and the last one of a line begins early enough to have as many.
struct TileRows {
  int64_t rows;        // counted as whole halves of tiles, where these are of a line each
  int64_t line, used;  // the same, where they are
  int64_t row;         // from one to the next; what of, is up to the caller
  int64_t half;        // or 0
  int64_t line_step;   // from line to line, with halves

  static TileRows matrix(int64_t rows, int64_t line, int64_t used, int64_t row) {
    return {rows, line, used, row, 0, 0};
  }
  static TileRows halves(int64_t lines, int64_t used, int64_t row, int64_t line_step) {
    const int64_t count = ceil_div(used, kHalfTile);
    return {lines * count * kHalfTile, used, used, row, ceil_div(used, count), line_step};
  }

  int64_t tiles() const { return ceil_div(rows, 2 * kHalfTile); }

  // Of rows as they are counted: where the first one of half a tile lies.
  int64_t place(int64_t begin) const {
    if (half == 0) return begin * row;
    const int64_t count = ceil_div(used, half), at = begin / kHalfTile;
    return at / count * line_step + min64(at % count * half, used - half) * row;
  }

  // Of `count` rows from `begin` on, which are those from `first` on of a tile.
  void outputs(int64_t begin, int64_t count, int64_t first, TileOutputs* to) const {
    to->clear();
    if (half == 0 && line == used) return to->add(first, count, begin);
    if (half == 0) {
      for (int64_t done = 0; done < count;) {
        const int64_t at = begin + done, in_line = at % line, some = min64(count - done, line - in_line);
        to->add(first + done, min64(some, used - in_line), at / line * used + in_line);
        done += some;
      }
      return;
    }
    const int64_t halves = ceil_div(used, half);
    for (int64_t done = 0; done < count; done += kHalfTile) {
      const int64_t at = (begin + done) / kHalfTile, wanted = at % halves * half, begins = min64(wanted, used - half);
      to->add(first + done + wanted - begins, half + begins - wanted, at / halves * used + wanted);
    }
  }
};

}  // namespace aotpack::kernels
