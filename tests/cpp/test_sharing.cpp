// Whether views share memory: against all their bytes, and in calls that write to an input.
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <set>
#include <vector>

#include "aotpack/module_abi.h"
#include "base/sharing.h"
#include "fixtures.h"

using namespace aotpack::tests;
using namespace aotpack::runtime;
using aotpack::MutableTensorView;
using aotpack::TensorView;

namespace {

struct View {
  int64_t start = 0;  // in bytes
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  size_t item = 1;

  MemoryView at(const char* base) const {
    return {base + start, sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()), item};
  }
  // The addresses of all elements, relative to the base.
  std::vector<int64_t> elements() const {
    std::vector<int64_t> out = {start};
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      std::vector<int64_t> next;
      for (const int64_t from : out) {
        for (int64_t i = 0; i < sizes[axis]; ++i) next.push_back(from + i * strides[axis] * static_cast<int64_t>(item));
      }
      out = next;
    }
    return out;
  }
  std::set<int64_t> bytes() const {
    std::set<int64_t> out;
    for (const int64_t from : elements()) {
      for (int64_t i = 0; i < static_cast<int64_t>(item); ++i) out.insert(from + i);
    }
    return out;
  }
};

View random_view(std::mt19937& random, bool whole_elements) {
  View view;
  view.item = size_t{1} << random() % 4;
  view.start = static_cast<int64_t>(random() % 60);
  if (whole_elements) {
    view.item = 4;
    view.start = view.start / 4 * 4;
  }
  const size_t rank = random() % 4;
  for (size_t i = 0; i < rank; ++i) {
    view.sizes.push_back(random() % 20 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 4));
    view.strides.push_back(static_cast<int64_t>(random() % 25) - 12);
  }
  return view;
}

const char base[1] = {};

bool sharing(const View& a, const View& b) {
  const bool shared = may_share(a.at(base), b.at(base));
  CHECK(may_share(b.at(base), a.at(base)) == shared);
  return shared;
}

}  // namespace

TEST_CASE("strides and sizes at the end of 64 bits: nothing overflows, and the answer is the careful one") {
  constexpr int64_t kBig = int64_t{1} << 62;
  char byte = 0;
  for (const int64_t size : {int64_t{2}, int64_t{3}, kBig, INT64_MAX}) {
    for (const int64_t stride : {kBig, INT64_MAX, -kBig, INT64_MIN, INT64_MIN + 1}) {
      int64_t sizes[AOTPACK_MAX_RANK];
      int64_t strides[AOTPACK_MAX_RANK];
      for (int i = 0; i < AOTPACK_MAX_RANK; ++i) {
        sizes[i] = size;
        strides[i] = stride > 0 ? stride - i : stride + i;
      }
      const aotpack::runtime::MemoryView view{&byte, sizes, strides, AOTPACK_MAX_RANK, 4};
      CHECK(aotpack::runtime::may_overlap_itself(view));
      (void)aotpack::runtime::may_share(view, view);  // under UBSan
    }
  }
}

TEST_CASE("sharing: exactly where a byte belongs to both") {
  std::mt19937 random(21);
  int shared = 0, near = 0;
  for (int round = 0; round < 20000; ++round) {
    const View a = random_view(random, round % 2 == 0);
    const View b = random_view(random, round % 2 == 0);
    const std::set<int64_t> left = a.bytes();
    const std::set<int64_t> right = b.bytes();
    bool expected = false;
    for (const int64_t byte : left) expected = expected || right.count(byte) != 0;
    CAPTURE(round);
    REQUIRE(sharing(a, b) == expected);
    shared += expected;
    near += !expected && intersect(addresses(a.at(base)), addresses(b.at(base)));
  }
  CHECK(shared > 2000);
  CHECK(near > 2000);  // where intervals alone would have been wrong
}

TEST_CASE("sharing: exactly where two elements of a view lie in one place") {
  std::mt19937 random(22);
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    View view = random_view(random, true);
    const std::vector<int64_t> all = view.elements();
    const bool expected = std::set<int64_t>(all.begin(), all.end()).size() != all.size();
    CAPTURE(round);
    REQUIRE(may_overlap_itself(view.at(base)) == expected);
    overlapping += expected;
  }
  CHECK(overlapping > 2000);
  // No element twice, though no axis is beyond the reach of the others: is_non_overlapping() gives up on it.
  const View interleaved = {0, {2, 2}, {3, 2}, 4};
  CHECK_FALSE(may_overlap_itself(interleaved.at(base)));
}

TEST_CASE("sharing: big layouts are decided at once, extremes do not overflow") {
  const int64_t n = int64_t{1} << 20;
  const View even = {0, {n, n}, {2 * n, 2}, 4};
  const View odd = {4, {n, n}, {2 * n, 2}, 4};
  CHECK_FALSE(sharing(even, odd));
  CHECK(sharing(even, View{8, {n, n}, {2 * n, 2}, 4}));
  // The left and the right half of a matrix, one of them transposed.
  const View left = {0, {n, n}, {2 * n, 1}, 4};
  const View right = {4 * n, {n, n}, {1, 2 * n}, 4};
  CHECK_FALSE(sharing(left, right));
  CHECK(sharing(left, View{4 * n - 4, {n, n}, {1, 2 * n}, 4}));
  // Backwards from the end.
  CHECK_FALSE(sharing(left, View{4 * (2 * n * n - 1), {n, n}, {-2 * n, -1}, 4}));
  CHECK(sharing(left, View{4 * (2 * n * n - 1), {n, n + 1}, {-2 * n, -1}, 4}));

  const View wild = {0, {INT64_MAX, 3, 2}, {INT64_MAX, INT64_MIN, -1}, 16};
  (void)sharing(wild, wild);
  CHECK(may_overlap_itself(wild.at(base)));
  CHECK(may_overlap_itself(View{0, {INT64_MAX, INT64_MAX}, {0, 0}, 1}.at(base)));

  // What is too irregular is not searched for long.
  const auto begin = std::chrono::steady_clock::now();
  const View knot = {0, {97, 89, 83, 79, 73, 71}, {1013, 1511, 2003, 2503, 3001, 3511}, 8};
  const View other = {4, {67, 61, 59, 53, 47, 43}, {1019, 1523, 2011, 2521, 3011, 3517}, 8};
  (void)sharing(knot, other);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("calls that write to an input: it shares no element with another one, nor with itself") {
  const auto context = [](bool second_too) {
    return trio(
        {},
        {value("a", "float32", {3, 2}, {}, true), value("b", "float32", {3, 2}, {}, second_too), number("n", "int")},
        expression("u0", Json()));
  };
  const int64_t n = 1;
  for (const bool second_too : {false, true}) {
    aotpack::Context writing = context(second_too);
    std::vector<float> data(64);
    const auto at = [&](size_t first, aotpack::Shape strides) {
      return MutableTensorView(&data[first], {3, 2}, strides);
    };
    const auto run = [&](const TensorView& a, const TensorView& b) {
      return writing.run({a, b, TensorView(&n, {})})[0].numel();
    };
    const auto refused = [&](const TensorView& a, const TensorView& b) {
      return refusal(writing, {a, b, TensorView(&n, {})});
    };
    const std::string shared = "inputs 'a' and 'b' share memory, but the call writes to 'a'";
    CHECK(refused(at(0, {}), at(0, {})) == shared + "; no variant is for 'a' is 'b'");
    CHECK(refused(at(0, {}), at(5, {})) == shared);
    CHECK(run(at(0, {}), at(6, {})) == 1);
    CHECK(run(at(6, {}), at(0, {})) == 1);
    // Columns of one matrix.
    CHECK(run(at(0, {4, 2}), at(1, {4, 2})) == 1);
    CHECK(refused(at(0, {4, 2}), at(2, {4, 2})) == shared);
    CHECK(refused(at(0, {4, 1}), at(13, {-4, -1})) == shared);
    // One element of the other, broadcast: fine to read, not to write.
    if (!second_too) {
      CHECK(run(at(0, {}), at(6, {0, 0})) == 1);
      CHECK(refused(at(0, {}), at(5, {0, 0})) == shared);
    } else {
      CHECK(refused(at(0, {}), at(6, {0, 0})) == "input 'b' is written to, but its strides overlap");
    }
    CHECK(refused(at(0, {1, 1}), at(16, {})) == "input 'a' is written to, but its strides overlap");
    CHECK(run(at(0, {2, 3}), at(16, {})) == 1);  // elements 0 to 7 without a clash, out of order
  }
  // Of which the second one is written to.
  aotpack::Context second =
      trio({}, {value("a", "float32", {2}), value("b", "float32", {2}, {}, true), number("n", "int")},
           expression("u0", Json()));
  float both[3] = {};
  CHECK(refusal(second, {TensorView(both, {2}), MutableTensorView(both + 1, {2}), TensorView(&n, {})}) ==
        "inputs 'a' and 'b' share memory, but the call writes to 'b'");
  // Nothing is written to: anything goes.
  aotpack::Context reading =
      trio({}, {value("a", "float32", {2}), value("b", "float32", {2}), number("n", "int")}, expression("u0", Json()));
  CHECK(reading.run({TensorView(both, {2}), TensorView(both, {2}), TensorView(&n, {})}).size() == 1);
  // Empty ones share nothing.
  aotpack::Context sized =
      trio({dim("k", 0, 9)},
           {value("a", "float32", {size("k")}, {}, true), value("b", "float32", {size("k")}), number("n", "int")},
           expression("u0", Json()));
  CHECK(sized.run({MutableTensorView(both, {0}), TensorView(both, {0}), TensorView(&n, {})}).size() == 1);
}
