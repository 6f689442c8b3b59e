#include "embedding_bag.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Input {
  DType dtype;
  BagMode mode;
  int64_t rows, dim;
  std::vector<int64_t> indices, offsets;
  bool include_last = false, fixed = false, wide = true, weighted = false;
  int64_t bag_length = 0, padding_idx = -1, pad = 0;
  int threads = 2;
};

struct Result {
  BagStatus status;
  Buffer y, table, weights;
  int64_t bags, stride;
};

Result run(const Input& in) {
  const int64_t count = static_cast<int64_t>(in.indices.size()), stride = in.dim + in.pad;
  const std::vector<int32_t> narrow_indices(in.indices.begin(), in.indices.end());
  const std::vector<int32_t> narrow_offsets(in.offsets.begin(), in.offsets.end());
  Result r = {BagStatus::ok, {}, Buffer::random(in.dtype, in.rows * stride, 1), Buffer::random(in.dtype, count), 0,
              stride};
  static const int64_t none = 0;  // a pointer to pass for empty arrays
  const void* indices = in.wide ? static_cast<const void*>(in.indices.data()) : narrow_indices.data();
  const void* offsets = in.wide ? static_cast<const void*>(in.offsets.data()) : narrow_offsets.data();
  if (in.offsets.empty()) offsets = &none;
  EmbeddingBagArgs a = {in.dtype,
                        in.mode,
                        r.table.data(),
                        in.rows,
                        in.dim,
                        stride,
                        in.wide,
                        indices,
                        count,
                        in.fixed ? nullptr : offsets,
                        static_cast<int64_t>(in.offsets.size()),
                        in.include_last,
                        in.bag_length,
                        in.weighted ? r.weights.data() : nullptr,
                        in.padding_idx,
                        nullptr,
                        stride,
                        in.threads};
  r.bags = embedding_bag_count(a);
  r.y = Buffer::filled(in.dtype, r.bags * stride, -77.0f);
  a.y = r.y.data();
  r.status = embedding_bag(a);
  return r;
}

void check(const Input& in) {
  const Result r = run(in);
  REQUIRE(r.status == BagStatus::ok);
  int64_t wrong = 0;
  for (int64_t i = 0; i < r.bags; ++i) {
    int64_t begin = i * in.bag_length, end = begin + in.bag_length;
    if (!in.fixed) {
      begin = in.offsets[static_cast<size_t>(i)];
      end = static_cast<size_t>(i + 1) < in.offsets.size() ? in.offsets[static_cast<size_t>(i + 1)]
                                                           : static_cast<int64_t>(in.indices.size());
    }
    for (int64_t d = 0; d < in.dim; ++d) {
      double value = 0;
      int64_t counted = 0;
      for (int64_t j = begin; j < end; ++j) {
        const int64_t index = in.indices[static_cast<size_t>(j)];
        if (index == in.padding_idx) continue;
        const double x = r.table.get(index * r.stride + d);
        if (in.mode == BagMode::max) {
          value = counted == 0 ? x : std::max(value, x);
        } else {
          value += x * (in.weighted ? r.weights.get(j) : 1.0f);
        }
        ++counted;
      }
      if (in.mode == BagMode::mean && counted > 0) value /= static_cast<double>(counted);
      wrong += !close(r.y.get(i * r.stride + d), value, tolerance(in.dtype, value, 10));
    }
    for (int64_t d = in.dim; d < r.stride; ++d) wrong += r.y.get(i * r.stride + d) != -77.0f;
  }
  CHECK(wrong == 0);
}

TEST_CASE("embedding_bag: random bags") {
  for (int i = 0; i < 200; ++i) {
    Input in = {
        random_dtype(), static_cast<BagMode>(pick_in(0, 2)), pick_in(1, 40), pick({1, 5, 16, 24, 64, 100}), {}, {}};
    const int64_t bags = pick_in(0, 9);
    for (int64_t b = 0; b < bags; ++b) {
      in.offsets.push_back(static_cast<int64_t>(in.indices.size()));
      for (int64_t n = pick({0, 0, 1, 3, 20}); n > 0; --n) in.indices.push_back(pick_in(0, in.rows - 1));
    }
    in.include_last = coin();
    if (in.include_last) in.offsets.push_back(static_cast<int64_t>(in.indices.size()));
    if (bags == 0) in.indices.clear();
    in.wide = coin();
    in.weighted = in.mode == BagMode::sum && coin();
    in.padding_idx = coin() ? pick_in(0, in.rows - 1) : -1;
    in.pad = pick({0, 3});
    check(in);
  }
}

TEST_CASE("embedding_bag: bags of one length, many threads") {
  for (const DType dtype : kDTypes) {
    for (int mode = 0; mode < 3; ++mode) {
      Input in = {dtype, static_cast<BagMode>(mode), 500, 64, {}, {}};
      in.fixed = true;
      in.bag_length = 7;
      in.threads = 4;
      for (int i = 0; i < 7 * 900; ++i) in.indices.push_back(pick_in(0, 499));
      check(in);
    }
  }
}

TEST_CASE("embedding_bag: errors are reported, not read") {
  for (const bool wide : {false, true}) {
    Input in = {DType::f32, BagMode::sum, 10, 8, {1, 2, 3, 9}, {0, 2}};
    in.wide = wide;
    CHECK(run(in).status == BagStatus::ok);
    for (const int64_t bad : {int64_t{10}, int64_t{-1}, int64_t{1} << 30, -(int64_t{1} << 31)}) {
      Input wrong = in;
      wrong.indices[3] = bad;
      CHECK(run(wrong).status == BagStatus::index_out_of_range);
    }
    for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{1, 2}, {0, 3, 2}, {0, 5}, {0, -1}}) {
      Input wrong = in;
      wrong.offsets = offsets;
      CHECK(run(wrong).status == BagStatus::bad_offsets);
    }
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
