#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gemm_int8.h"

using namespace aotpack::kernels;

namespace {

struct Case {
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false, y_transposed = false, a_unsigned = false;
  int threads = 1;
  bool extremes = false;
};

// Rows are a few elements apart. Operands end with their last element, so that sanitizers see reads beyond it.
void check(const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  std::mt19937 random(static_cast<unsigned>(c.m * 7919 + c.n * 104729 + c.k));
  const auto matrix = [](int64_t rows, int64_t columns, bool transposed, int64_t* row, int64_t* column) {
    const int64_t lines = transposed ? columns : rows, inside = transposed ? rows : columns;
    *(transposed ? column : row) = inside + 3;
    *(transposed ? row : column) = 1;
    return static_cast<size_t>(lines > 0 && inside > 0 ? (lines - 1) * (inside + 3) + inside : 0);
  };
  Int8GemmArgs g = {};
  g.m = c.m, g.n = c.n, g.k = c.k;
  std::vector<int8_t> a(matrix(c.m, c.k, c.a_transposed, &g.a_row, &g.a_col));
  std::vector<int8_t> b(matrix(c.k, c.n, c.b_transposed, &g.b_row, &g.b_col));
  constexpr int32_t kUntouched = 0x5a5a5a5a;
  std::vector<int32_t> y(matrix(c.m, c.n, c.y_transposed, &g.y_row, &g.y_col), kUntouched);
  for (int8_t& x : a) x = c.extremes ? -128 : static_cast<int8_t>(random());
  for (int8_t& x : b) x = c.extremes ? -128 : static_cast<int8_t>(random());
  std::vector<int32_t> expected = y;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      uint32_t sum = 0;
      for (int64_t p = 0; p < c.k; ++p) {
        const int8_t x = a[static_cast<size_t>(i * g.a_row + p * g.a_col)];
        const int32_t left = c.a_unsigned ? static_cast<uint8_t>(x) : x;
        sum += static_cast<uint32_t>(left * b[static_cast<size_t>(p * g.b_row + j * g.b_col)]);
      }
      expected[static_cast<size_t>(i * g.y_row + j * g.y_col)] = static_cast<int32_t>(sum);
    }
  }
  g.a = a.data(), g.b = b.data(), g.y = y.data();
  g.a_unsigned = c.a_unsigned;
  g.num_threads = c.threads;
  std::vector<char> scratch(gemm_int8_scratch_bytes(g));
  g.scratch = scratch.data();
  gemm_int8(g);
  CHECK(y == expected);
}

}  // namespace

TEST_CASE("gemm int8: rows, columns and depths around whole tiles") {
  for (int64_t m : {1, 2, 3, 6, 7, 13, 25}) {
    for (int64_t n : {1, 5, 16, 17, 32, 33}) {
      for (int64_t k : {1, 3, 4, 7, 8, 12, 16, 21, 64, 67}) check({m, n, k});
    }
  }
}

TEST_CASE("gemm int8: transposed operands and results, by uint8 and int8") {
  for (int bits = 0; bits < 16; ++bits) {
    for (int64_t k : {4, 29, 48}) {
      check({7, 45, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
    }
  }
}

TEST_CASE("gemm int8: many threads, and nothing to sum") {
  check({.m = 40, .n = 200, .k = 130, .b_transposed = true, .threads = 3});
  check({.m = 40, .n = 200, .k = 132, .threads = 3});
  check({.m = 3, .n = 4, .k = 0});
  check({.m = 0, .n = 4, .k = 5});
}

TEST_CASE("gemm int8: sums of extremes wrap around only beyond 32 bits") {
  check({.m = 4, .n = 33, .k = 1000, .extremes = true});
  check({.m = 2, .n = 2, .k = 140000, .extremes = true});
}
