// How work is spread over the threads of one call.
#pragma once

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <atomic>

#include "types.h"

namespace aotpack::kernels {

// How many threads `microseconds` of single-threaded work deserve. Waking a team costs a few microseconds, so small
// work stays on the calling thread.
inline int worth_threads(double microseconds, int num_threads) {
  if (num_threads <= 1 || microseconds < 20.0) return 1;
  const double most = microseconds / 8.0;
  return most < num_threads ? static_cast<int>(most) : num_threads;
}

// Calls body(thread, threads) once on each of at most `num_threads` threads.
template <class Body>
void parallel(int num_threads, const Body& body) {
#if defined(_OPENMP)
  if (num_threads > 1) {
#pragma omp parallel num_threads(num_threads)
    body(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  (void)num_threads;
  body(0, 1);
}

struct Range {
  int64_t begin, end;
};
// `parts` nearly equal pieces of [0, total), divided once.
class Shares {
 public:
  Shares(int64_t total, int64_t parts) : base_(total / parts), extra_(total % parts) {}
  Range operator[](int64_t part) const {
    const int64_t begin = part * base_ + min64(part, extra_);
    return {begin, begin + base_ + (part < extra_ ? 1 : 0)};
  }

 private:
  int64_t base_, extra_;
};
// The part-th of `parts` nearly equal pieces of [0, total).
inline Range share(int64_t total, int64_t part, int64_t parts) { return Shares(total, parts)[part]; }

struct Rectangle {
  Range rows, columns;
};
// How many parts a grid of `threads` rectangles of rows x columns tiles cuts the rows into: those of the most even grid
// and, among about equals, of the one that lets each thread read least, where a row tile costs row_bytes and a column
// tile column_bytes. Only how the two compare counts.
inline int row_cuts(int64_t rows, int64_t columns, double row_bytes, double column_bytes, int threads) {
  int best = 1;
  double best_work = 1e300, best_bytes = 1e300;
  for (int cuts = 1; cuts <= threads; ++cuts) {
    if (threads % cuts != 0) continue;
    const double r = static_cast<double>(ceil_div(rows, cuts)),
                 c = static_cast<double>(ceil_div(columns, threads / cuts));
    const double work = r * c, bytes = r * row_bytes + c * column_bytes;
    if (work < 0.96 * best_work || (work < 1.04 * best_work && bytes < best_bytes)) {
      best_work = work;
      best_bytes = bytes;
      best = cuts;
    }
  }
  return best;
}

// The thread-th rectangle of rows x columns of which the rows are cut into `cuts` parts, a divisor of `threads`.
inline Rectangle cell(int64_t rows, int64_t columns, int cuts, int thread, int threads) {
  const int column_cuts = threads / cuts;
  return {share(rows, thread / column_cuts, cuts), share(columns, thread % column_cuts, column_cuts)};
}

// Splits rows x columns tiles into a grid of `threads` rectangles, as `row_cuts` has it.
inline Rectangle share_grid(int64_t rows, int64_t columns, double row_bytes, double column_bytes, int thread,
                            int threads) {
  return cell(rows, columns, row_cuts(rows, columns, row_bytes, column_bytes, threads), thread, threads);
}

// Divides what the threads of a region share into smaller pieces, so that those who are early do what is left of a
// thread whose processor is busy with something else.
//
//   Pieces pieces(threads, microseconds);
//   parallel(threads, [&](int thread, int count) {
//     pieces.run(thread, count, [&](int part, int64_t piece, int64_t of) { … });
//   });
class Pieces {
 public:
  // About how long a piece takes.
  static constexpr double kMicroseconds = 40.0;

  // `microseconds`: what all of it takes one thread. A piece is worth the look at a counter.
  Pieces(int threads, double microseconds) {
    if (threads <= 1 || threads > kMostParts) return;
    const double each = microseconds / (threads * kMicroseconds);
    each_ = each >= kMostPieces ? kMostPieces : each >= 2.0 ? static_cast<int64_t>(each) : 1;
    for (int part = 0; part < threads && each_ > 1; ++part) next_[part].piece.store(0, std::memory_order_relaxed);
  }

  // Calls body(part, piece, of) for pieces that no thread has begun, the own part's first.
  template <class Body>
  void run(int thread, int threads, const Body& body) {
    if (each_ == 1) return body(thread, int64_t{0}, int64_t{1});
    for (int i = 0; i < threads; ++i) {
      const int part = thread + i < threads ? thread + i : thread + i - threads;
      std::atomic<int64_t>& next = next_[part].piece;
      for (int64_t piece = 0; (piece = next.fetch_add(1, std::memory_order_relaxed)) < each_;) body(part, piece, each_);
    }
  }

 private:
  static constexpr int kMostParts = 64;
  static constexpr int64_t kMostPieces = 8;
  struct alignas(64) Next {
    Next() {}
    std::atomic<int64_t> piece;
  };
  int64_t each_ = 1;
  Next next_[kMostParts];
};

// What reading a tile of rows costs that each piece copies before use, of reading it where it lies.
inline constexpr double kStagedReads = 4.0;

// A piece of a rectangle of rows x columns tiles, cut along the side that lets less be read again: a row tile costs
// row_bytes and a column tile column_bytes. Empty where there are too few tiles.
inline Rectangle piece_of(const Rectangle& all, int64_t piece, int64_t of, double row_bytes, double column_bytes) {
  const auto part = [&](const Range& range) {
    const Range cut = share(range.end - range.begin, piece, of);
    return Range{range.begin + cut.begin, range.begin + cut.end};
  };
  const int64_t rows = all.rows.end - all.rows.begin, columns = all.columns.end - all.columns.begin;
  // Cut along the rows, all columns are read for each piece.
  const bool by_rows = static_cast<double>(columns) * column_bytes <= static_cast<double>(rows) * row_bytes;
  if (by_rows ? rows >= of || columns < of : rows >= of && columns < of) return {part(all.rows), all.columns};
  return {all.rows, part(all.columns)};
}

// Waits for the whole team; only inside parallel(), by every thread of it.
inline void team_barrier(int threads) {
#if defined(_OPENMP)
  if (threads > 1) {
#pragma omp barrier
  }
#endif
  (void)threads;
}

}  // namespace aotpack::kernels
