#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/strided.h"

using namespace aotpack::runtime;

namespace {

// Positions of all elements in row-major order of the indices.
std::vector<int64_t> positions(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<int64_t> out = {0};
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<int64_t> next;
    for (const int64_t base : out) {
      for (int64_t i = 0; i < sizes[axis]; ++i) next.push_back(base + i * strides[axis]);
    }
    out = next;
  }
  return out;
}

// A random dense layout, optionally spread out, mirrored or broadcast.
std::vector<int64_t> random_strides(const std::vector<int64_t>& sizes, std::mt19937& random, bool source) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> strides(sizes.size());
  int64_t run = 1;
  for (const size_t axis : order) {
    if (random() % 4 == 0) run *= 2;
    strides[axis] = run;
    run *= std::max<int64_t>(sizes[axis], 1);
    if (random() % 5 == 0) strides[axis] = -strides[axis];
    if (source && random() % 8 == 0) strides[axis] = 0;
    if (sizes[axis] == 1 && random() % 2 == 0) strides[axis] = static_cast<int64_t>(random()) << 20;
  }
  return strides;
}

struct Buffer {
  std::vector<uint8_t> bytes;
  int64_t zero = 0;  // element (0, ..., 0)

  Buffer(const std::vector<int64_t>& at, size_t item) {
    const auto [low, high] = std::minmax_element(at.begin(), at.end());
    zero = at.empty() ? 0 : -*low;
    bytes.resize(at.empty() ? item : static_cast<size_t>(*high - *low + 1) * item);
  }
  uint8_t* element(int64_t position, size_t item) { return bytes.data() + static_cast<size_t>(zero + position) * item; }
};

}  // namespace

TEST_CASE("strided copies equal copies element by element, for random layouts") {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const size_t item = size_t{1} << random() % 5;
    std::vector<int64_t> sizes(random() % 6);
    for (int64_t& size : sizes) size = random() % 16 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 6);
    if (round % 100 == 0) sizes = {37, 2, 41};  // more than one tile
    const std::vector<int64_t> to_strides = random_strides(sizes, random, false);
    const std::vector<int64_t> from_strides = random_strides(sizes, random, true);
    // Dims of size 1 may have wild strides; they never count.
    const std::vector<int64_t> to_at = positions(sizes, to_strides);
    const std::vector<int64_t> from_at = positions(sizes, from_strides);
    Buffer to(to_at, item);
    Buffer from(from_at, item);
    for (uint8_t& byte : from.bytes) byte = static_cast<uint8_t>(random());
    Buffer expected = to;
    for (size_t i = 0; i < to_at.size(); ++i) {
      std::memcpy(expected.element(to_at[i], item), from.element(from_at[i], item), item);
    }
    strided_copy(to.element(0, item), to_strides.data(), from.element(0, item), from_strides.data(), sizes.data(),
                 static_cast<int32_t>(sizes.size()), item);
    REQUIRE(to.bytes == expected.bytes);
  }
}

TEST_CASE("overlap: nothing that shares an element passes") {
  std::mt19937 random(4);
  int passed = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<int64_t> sizes(1 + random() % 4);
    std::vector<int64_t> strides(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = 1 + static_cast<int64_t>(random() % 4);
      strides[i] = static_cast<int64_t>(random() % 40) - 12;
    }
    if (!is_non_overlapping(sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()))) continue;
    ++passed;
    std::vector<int64_t> at = positions(sizes, strides);
    std::sort(at.begin(), at.end());
    REQUIRE(std::adjacent_find(at.begin(), at.end()) == at.end());
  }
  CHECK(passed > 100);
}

TEST_CASE("overlap: dense layouts pass, broadcasts do not, extremes do not overflow") {
  const auto check = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return is_non_overlapping(sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()));
  };
  CHECK(check({}, {}));
  CHECK(check({2, 3}, {3, 1}));
  CHECK(check({2, 3}, {1, 2}));
  CHECK(check({2, 3}, {-3, -1}));
  CHECK(check({1, 3}, {0, 1}));
  CHECK(check({0, 3}, {0, 0}));
  CHECK_FALSE(check({2, 3}, {0, 1}));
  CHECK_FALSE(check({2, 3}, {2, 1}));
  CHECK_FALSE(check({4, 4}, {INT64_MAX, 1}));
  CHECK_FALSE(check({4, 4}, {INT64_MIN, 1}));
}

TEST_CASE("dense strides") {
  const int64_t sizes[4] = {2, 3, 4, 5};
  const uint32_t channels_last[4] = {0, 2, 3, 1};
  int64_t strides[4];
  size_t bytes = 0;
  REQUIRE(dense_strides(sizes, channels_last, 4, 4, strides, &bytes));
  CHECK(std::vector<int64_t>(strides, strides + 4) == std::vector<int64_t>{60, 1, 15, 3});
  CHECK(bytes == 480);
  const int64_t empty[2] = {0, 7};
  const uint32_t plain[2] = {0, 1};
  REQUIRE(dense_strides(empty, plain, 2, 4, strides, &bytes));
  CHECK(bytes == 0);
  const int64_t huge[2] = {int64_t{1} << 31, int64_t{1} << 31};
  CHECK_FALSE(dense_strides(huge, plain, 2, 2, strides, &bytes));
  const int64_t vast[2] = {int64_t{1} << 32, int64_t{1} << 32};
  CHECK_FALSE(dense_strides(vast, plain, 2, 1, strides, &bytes));
}

TEST_CASE("strided_equal sees every element, and none besides") {
  std::mt19937 generator(11);
  for (int round = 0; round < 300; ++round) {
    const auto rank = static_cast<int32_t>(generator() % 5);
    const size_t item = size_t{1} << generator() % 5;
    int64_t sizes[4] = {}, dense[4] = {}, spread[4] = {};
    int64_t run = 1, wide = 1;
    bool empty = false;
    for (int32_t i = rank; i-- > 0;) {
      sizes[i] = static_cast<int64_t>(generator() % (round % 10 == 0 ? 4 : 3)) + (round % 10 == 0 ? 0 : 1);
      empty = empty || sizes[i] == 0;
      dense[i] = run;
      spread[i] = wide;
      run *= sizes[i];
      wide = wide * std::max<int64_t>(sizes[i], 1) + static_cast<int64_t>(generator() % 2);
    }
    std::vector<uint8_t> a(static_cast<size_t>(std::max<int64_t>(run, 1)) * item);
    for (uint8_t& byte : a) byte = static_cast<uint8_t>(generator());
    std::vector<uint8_t> b(static_cast<size_t>(wide) * item, 0xAA);
    strided_copy(b.data(), spread, a.data(), dense, sizes, rank, item);
    CHECK(strided_equal(a.data(), dense, b.data(), spread, sizes, rank, item));
    CHECK(strided_equal(b.data(), spread, a.data(), dense, sizes, rank, item));
    if (empty) continue;
    a[generator() % a.size()] ^= 1;
    CHECK_FALSE(strided_equal(a.data(), dense, b.data(), spread, sizes, rank, item));
  }
}
