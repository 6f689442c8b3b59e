// How work is spread over the threads of one call.
#pragma once

#if defined(_OPENMP)
#include <omp.h>
#endif

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
// The part-th of `parts` nearly equal pieces of [0, total).
inline Range share(int64_t total, int64_t part, int64_t parts) {
  const int64_t base = total / parts, extra = total % parts;
  const int64_t begin = part * base + min64(part, extra);
  return {begin, begin + base + (part < extra ? 1 : 0)};
}

struct Rectangle {
  Range rows, columns;
};
// Splits rows x columns tiles into a grid of `threads` rectangles: the most even one and, among about equals, the one
// that lets each thread read least, where a row tile costs row_bytes and a column tile column_bytes.
inline Rectangle share_grid(int64_t rows, int64_t columns, double row_bytes, double column_bytes, int thread,
                            int threads) {
  int best = 1;  // row cuts
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
  const int column_cuts = threads / best;
  return {share(rows, thread / column_cuts, best), share(columns, thread % column_cuts, column_cuts)};
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
