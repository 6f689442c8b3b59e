// How work is divided among threads.
#include <atomic>
#include <vector>

#include "parallel.h"
#include "util.h"

namespace aotpack::kernels::test {

TEST_CASE("pieces: each of each part once, whichever threads come") {
  for (const int threads : {1, 2, 3, 8, 64, 70}) {
    for (const double microseconds : {0.0, 300.0, 700.0, 1e3, 1e4, 1e6}) {
      // Those that are missing have not been scheduled.
      for (int missing = 0; missing < threads && missing < 4; ++missing) {
        Pieces pieces(threads, microseconds);
        std::vector<std::atomic<int>> found(static_cast<size_t>(threads) * 8);
        std::atomic<int64_t> most{1};
        const auto take = [&](int thread) {
          pieces.run(thread, threads, [&](int part, int64_t piece, int64_t of) {
            most.store(of);
            found[static_cast<size_t>(part * 8 + piece)].fetch_add(1);
          });
        };
        parallel(threads, [&](int thread, int count) {
          if (count == threads && thread >= missing) take(thread);
        });
        for (int thread = 0; thread < missing; ++thread) take(thread);
        if (found[static_cast<size_t>(threads - 1) * 8].load() == 0) continue;  // fewer threads than were asked for
        for (int part = 0; part < threads; ++part) {
          for (int64_t piece = 0; piece < 8; ++piece) {
            CHECK(found[static_cast<size_t>(part * 8 + piece)].load() == (piece < most.load() ? 1 : 0));
          }
        }
        CHECK(most.load() <= 8);
        const auto expected = static_cast<int64_t>(microseconds / (2 * Pieces::kMicroseconds));
        if (threads == 2) CHECK(most.load() == min64(max64(expected, 1), 8));
      }
    }
  }
}

TEST_CASE("pieces of a rectangle are all of it, each tile once") {
  for (const int64_t rows : {0, 1, 3, 8, 21}) {
    for (const int64_t columns : {0, 1, 2, 9, 40}) {
      for (const int64_t of : {1, 2, 5, 8}) {
        for (const double column_bytes : {0.0, 1.0, 100.0}) {
          const Rectangle all = {{5, 5 + rows}, {7, 7 + columns}};
          std::vector<int> seen(static_cast<size_t>(rows * columns), 0);
          for (int64_t piece = 0; piece < of; ++piece) {
            const Rectangle mine = piece_of(all, piece, of, 10.0, column_bytes);
            for (int64_t r = mine.rows.begin; r < mine.rows.end; ++r) {
              for (int64_t c = mine.columns.begin; c < mine.columns.end; ++c) {
                REQUIRE((r >= 5 && r < 5 + rows && c >= 7 && c < 7 + columns));
                seen[static_cast<size_t>((r - 5) * columns + c - 7)] += 1;
              }
            }
          }
          for (const int count : seen) CHECK(count == 1);
        }
      }
    }
  }
  // Along the rows, the columns are read again for each piece, and the other way round.
  const Rectangle all = {{0, 16}, {0, 16}};
  CHECK(piece_of(all, 1, 4, 1.0, 2.0).columns.end == 8);
  CHECK(piece_of(all, 1, 4, 2.0, 1.0).rows.end == 8);
}

}  // namespace aotpack::kernels::test
