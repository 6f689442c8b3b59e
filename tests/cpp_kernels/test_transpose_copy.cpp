#include <algorithm>
#include <numeric>

#include "transpose_copy.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

// Copies and compares byte by byte. Strides are those of src.
void check(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t elem, int threads = 2) {
  int64_t low = 0, high = 0, total = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    total *= sizes[d];
    (strides[d] < 0 ? low : high) += strides[d] * std::max<int64_t>(sizes[d] - 1, 0);
  }
  std::vector<unsigned char> src(static_cast<size_t>((high - low + 1) * elem));
  for (auto& byte : src) byte = static_cast<unsigned char>(rng()());
  std::vector<unsigned char> dst(static_cast<size_t>(total * elem), 0xee), expected = dst;
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t i = 0; i < total; ++i) {
    int64_t at = -low;
    for (size_t d = 0; d < sizes.size(); ++d) at += index[d] * strides[d];
    std::copy_n(src.data() + at * elem, elem, expected.data() + i * elem);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
  transpose_copy(dst.data(), src.data() + -low * elem, static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                 elem, threads);
  CAPTURE(elem);
  CAPTURE(sizes.size());
  CHECK((dst == expected));
}

TEST_CASE("transpose_copy: NCHW into NHWC and back") {
  for (const int64_t elem : {1, 2, 4, 8, 16}) {
    for (const int64_t c : {1, 2, 3, 4, 16, 33, 100}) {
      const int64_t n = 2, h = 9, w = 11;
      check({n, h, w, c}, {c * h * w, w, 1, h * w}, elem);
      check({n, c, h, w}, {c * h * w, 1, w * c, c}, elem);
      check({n, c, h, w}, {c * h * w, h * w, w, 1}, elem);
    }
  }
  check({1, 150, 200, 64}, {64 * 30000, 200, 1, 30000}, 4, 3);
  check({1, 64, 150, 200}, {64 * 30000, 1, 200 * 64, 64}, 2, 3);
  check({3000, 401}, {401, 1}, 4, 4);
  check({1, 1500000}, {0, 1}, 4, 4);
}

TEST_CASE("transpose_copy: broadcast, backwards, empty, scalar") {
  for (const int64_t elem : {1, 2, 4, 8, 16}) {
    check({}, {}, elem);
    check({1, 1}, {7, 9}, elem);
    check({0, 5}, {5, 1}, elem);
    check({5, 0}, {1, 1}, elem);
    check({4, 5}, {0, 1}, elem);
    check({4, 5}, {1, 0}, elem);
    check({4, 5}, {0, 0}, elem);
    check({6, 7}, {-7, 1}, elem);
    check({6, 7}, {1, -6}, elem);
    check({6, 7}, {14, 2}, elem);
  }
}

TEST_CASE("transpose_copy: random permutations") {
  for (int i = 0; i < 300; ++i) {
    const int64_t rank = pick_in(1, 6);
    std::vector<int64_t> sizes, order(static_cast<size_t>(rank)), strides(static_cast<size_t>(rank));
    for (int64_t d = 0; d < rank; ++d) sizes.push_back(pick({1, 1, 2, 3, 5, 8, 13}));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng());
    int64_t stride = pick({1, 1, 2});
    for (const int64_t d : order) {
      strides[static_cast<size_t>(d)] = stride;
      stride *= sizes[static_cast<size_t>(d)] + pick({0, 0, 0, 1});
    }
    check(sizes, strides, pick({1, 2, 4, 8, 16}), static_cast<int>(pick_in(1, 3)));
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
