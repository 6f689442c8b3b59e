#include "bf16_product.h"
#include "exact.h"
#include "linear.h"
#include "linear_bf16.h"
#include "rounding.h"
#include "turns.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Case {
  DType dtype;
  int64_t m, n, k;
  Act act;
  bool bias, residual;
  int64_t x_pad = 0, y_pad = 0, offset = 0;
  int threads = 2;
  Knobs knobs = {};
};

Buffer pack(const Buffer& b, int64_t k, int64_t n) {
  const int64_t panels = ceil_div(n, kPanel);
  Buffer packed = Buffer::filled(b.dtype(), panels * k * kPanel, 0.0f);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) packed.set(((j / kPanel) * k + i) * kPanel + j % kPanel, b.get(i * n + j));
  }
  return packed;
}

void check(const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(static_cast<int>(c.dtype));
  CAPTURE(static_cast<int>(c.act));
  CAPTURE(c.knobs.bits);
  const int64_t x_stride = c.k + c.x_pad, y_stride = c.n + c.y_pad, r_stride = c.n + 2 * c.y_pad;
  const auto extent = [](int64_t rows, int64_t stride, int64_t columns) {
    return rows == 0 ? 0 : (rows - 1) * stride + columns;
  };
  const Buffer x = Buffer::random(c.dtype, extent(c.m, x_stride, c.k), c.offset);
  const Buffer b = Buffer::random(c.dtype, c.k * c.n);
  const Buffer packed = pack(b, c.k, c.n);
  const Buffer bias = Buffer::random(c.dtype, c.n, c.offset);
  const Buffer residual = Buffer::random(c.dtype, extent(c.m, r_stride, c.n), c.offset);
  Buffer y = Buffer::filled(c.dtype, extent(c.m, y_stride, c.n), -77.0f, c.offset);
  const LinearArgs args = {c.dtype,
                           c.m,
                           c.n,
                           c.k,
                           x.data(),
                           x_stride,
                           packed.data(),
                           c.bias ? bias.data() : nullptr,
                           c.residual ? residual.data() : nullptr,
                           r_stride,
                           c.act,
                           y.data(),
                           y_stride,
                           c.threads,
                           c.knobs};
  // Dot products also on processors where linear does without them; tiles only by leave of the system.
  const bool tiles = kBf16Rows > 16;
  const auto run = [&](const LinearArgs& a) {
    if (kBf16Rows > 0 && !tiles && c.dtype == DType::bf16 && c.m > 0 && c.n > 0) {
      linear_bf16(a, c.dtype);
    } else {
      linear(a);
    }
  };
  run(args);
  int64_t wrong = 0;
  if (c.residual) {  // which may lie where the result will
    Buffer both = residual;
    LinearArgs over = args;
    over.residual = over.y = both.data();
    over.y_stride = r_stride;
    run(over);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) wrong += both.get(i * r_stride + j) != y.get(i * y_stride + j);
    }
  }
  const std::vector<double> given = x.numbers(), weight = b.numbers();
  for (int64_t i = 0; i < c.m; ++i) {
    std::vector<double> sums(static_cast<size_t>(c.n));
    add_product(sums.data(), given.data() + i * x_stride, weight.data(), 1, c.n, c.k);
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = sums[static_cast<size_t>(j)] + (c.bias ? bias.get(j) : 0.0);
      if (c.residual) sum += residual.get(i * r_stride + j);
      const double expected = reference_act(c.act, sum);
      const double got = y.get(i * y_stride + j);
      wrong += !close(got, expected, tolerance(c.dtype, expected, static_cast<double>(c.k)));
    }
    for (int64_t j = c.n; j < y_stride && i + 1 < c.m; ++j) wrong += y.get(i * y_stride + j) != -77.0f;
  }
  CHECK(wrong == 0);
}

TEST_CASE("linear: every number of rows and every activation") {
  for (const DType dtype : kDTypes) {
    for (int64_t m = 1; m <= 30; ++m) check({dtype, m, 40, 19, static_cast<Act>(m % 10), true, m % 2 == 0});
    for (int act = 0; act <= 9; ++act) check({dtype, 3, 33, 8, static_cast<Act>(act), act % 2 == 0, act % 3 == 0});
  }
}

TEST_CASE("linear: every number of columns") {
  for (const DType dtype : kDTypes) {
    for (int64_t n = 1; n <= 70; ++n) check({dtype, pick_in(1, 15), n, pick_in(1, 9), Act::relu, true, true, 0, 1, 1});
  }
}

TEST_CASE("linear: nothing to do, nothing to sum") {
  for (const DType dtype : kDTypes) {
    check({dtype, 0, 5, 4, Act::none, true, false});
    check({dtype, 5, 0, 4, Act::none, true, false});
    check({dtype, 5, 7, 0, Act::relu, true, true});
    check({dtype, 5, 7, 0, Act::none, false, false});
    check({dtype, 1, 1, 1, Act::none, false, false});
  }
}

TEST_CASE("linear: long sums, rows that alias in the cache, many threads") {
  for (const DType dtype : kDTypes) {
    check({dtype, 33, 70, 1024, Act::none, true, true});
    check({dtype, 70, 40, 2048, Act::gelu, true, false});
    check({dtype, 5, 65, 3000, Act::relu, false, true, 1, 2, 1, 3});
    check({dtype, 40, 300, 4500, Act::none, true, true, 0, 0, 0, 4});
    check({dtype, 1, 257, 5000, Act::silu, true, false, 0, 0, 0, 4});
    check({dtype, 300, 10, 700, Act::tanh, true, false, 0, 0, 0, 5});
  }
}

TEST_CASE("linear: several tiles of rows, with clamps and residuals") {
  for (const DType dtype : kDTypes) {
    for (int64_t m = 29; m <= 57; ++m) {
      const Act act = m % 3 == 0 ? Act::relu : m % 3 == 1 ? Act::relu6 : Act::none;
      check({dtype, m, 70, pick_in(1, 90), act, m % 4 != 0, m % 2 == 0, 0, pick_in(0, 3), pick_in(0, 3), 1});
    }
    // Rows a page apart, whose last columns are an odd number.
    for (const int64_t k : {512, 513, 1101, 2048}) {
      check({dtype, 45, 70, k, Act::relu6, true, true, 2048 - k, 0, 0, 1});
      check({dtype, 31, 33, k, Act::none, true, false, 2048 - k, 1, 1, 2});
    }
  }
}

TEST_CASE("linear: every position of every knob") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c :
         {Case{dtype, 1, 65, 700, Act::relu, true, true}, Case{dtype, 17, 67, 1100, Act::none, true, true},
          Case{dtype, 31, 450, 40, Act::gelu, true, false, 3, 1, 1, 3},
          Case{dtype, 15, 70, 1536, Act::none, false, true, 0, 0, 0, 4},
          Case{dtype, 0, 5, 4, Act::none, true, false}}) {
      const KnobSizes sizes =
          linear_knobs({dtype, c.m, c.n, c.k, nullptr, 0, nullptr, nullptr, nullptr, 0, c.act, nullptr, 0, c.threads});
      for (const Knobs knobs : turns_of(sizes)) {
        Case turned = c;
        turned.knobs = knobs;
        check(turned);
      }
    }
  }
}

// Floats that begin `shift` floats after a line of the cache.
class Lines {
 public:
  Lines(int64_t size, int64_t shift, float value = -77.0f)
      : all_(static_cast<size_t>(size + 32), value), shift_(shift) {}
  float* data() {
    const auto begin = reinterpret_cast<uintptr_t>(all_.data());
    return all_.data() + (round_up(static_cast<int64_t>(begin), 64) - static_cast<int64_t>(begin)) / 4 + shift_;
  }

 private:
  std::vector<float> all_;
  int64_t shift_;
};

TEST_CASE("linear: results that go past the caches are the same") {
  // Above twelve megabytes, aligned: streamed. One float further: not.
  const Case cases[] = {{DType::f32, 50000, 64, 5, Act::relu, true, true},
                        {DType::f32, 40001, 80, 7, Act::relu6, false, true, 3, 16},
                        {DType::f32, 13, 262144, 20, Act::none, true, false, 0, 0, 0, 3},
                        {DType::f32, 50000, 64, 300, Act::none, true, true, 0, 0, 0, 4, Knobs{1}},
                        {DType::f32, 50000, 64, 9, Act::gelu, true, true}};
  for (const Case& c : cases) {
    CAPTURE(c.m);
    CAPTURE(c.n);
    const int64_t x_stride = c.k + c.x_pad, y_stride = c.n + c.y_pad, size = c.m * y_stride;
    const Buffer x = Buffer::random(c.dtype, c.m * x_stride), bias = Buffer::random(c.dtype, c.n);
    const Buffer packed = Buffer::random(c.dtype, round_up(c.n, kPanel) * c.k),
                 residual = Buffer::random(c.dtype, size);
    Lines streamed(size, 0), stored(size, 1), in_place(size, 0);
    const auto run = [&](float* y, const float* added) {
      linear({c.dtype, c.m, c.n, c.k, x.data(), x_stride, packed.data(), c.bias ? bias.data() : nullptr, added,
              y_stride, c.act, y, y_stride, c.threads, c.knobs});
    };
    const float* const added = c.residual ? static_cast<const float*>(residual.data()) : nullptr;
    run(streamed.data(), added);
    run(stored.data(), added);
    CHECK(std::memcmp(streamed.data(), stored.data(), static_cast<size_t>(size) * sizeof(float)) == 0);
    if (!c.residual) continue;
    std::memcpy(in_place.data(), added, static_cast<size_t>(size) * sizeof(float));
    run(in_place.data(), in_place.data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < size; ++i) wrong += i % y_stride < c.n && in_place.data()[i] != stored.data()[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("linear: rounding does not grow with the depth") {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const int64_t m : {1, 14, 40}) {
      const int64_t n = 48, k = 50000;
      const Buffer x = Buffer::random(dtype, m * k), b = Buffer::random(dtype, k * n);
      const Buffer packed = pack(b, k, n);
      Buffer y = Buffer::filled(DType::f32, m * n, -77.0f);
      linear_to_float({dtype, m, n, k, x.data(), k, packed.data(), nullptr, nullptr, 0, Act::none, y.data(), n, 2});
      std::vector<double> exact(static_cast<size_t>(m * n));
      add_product(exact.data(), x.numbers().data(), b.numbers().data(), m, n, k);
      const double error =
          relative_error(y, m, n, [&](int64_t r, int64_t j) { return exact[static_cast<size_t>(r * n + j)]; });
      CAPTURE(m);
      CHECK(error < 1.5e-6);
    }
  }
}

TEST_CASE("linear: random shapes") {
  for (int i = 0; i < 150; ++i) {
    check({random_dtype(), pick_in(0, 60), pick_in(0, 130), pick_in(0, 90), random_act(), coin(), coin(),
           pick({0, 0, 1, 7, 64}), pick({0, 0, 1, 5}), pick({0, 1, 3}), static_cast<int>(pick_in(1, 4))});
  }
}

TEST_CASE("linear: the residual may be the output, and NaN and infinity come through") {
  const int64_t m = 20, n = 37, k = 11;
  Buffer x = Buffer::random(DType::f32, m * k);
  const Buffer b = Buffer::random(DType::f32, k * n);
  const Buffer packed = pack(b, k, n);
  x.set(3 * k, std::nanf(""));
  Buffer y = Buffer::filled(DType::f32, m * n, 2.0f);
  Buffer fresh(DType::f32, m * n);
  const Buffer residual = Buffer::filled(DType::f32, m * n, 2.0f);
  linear({DType::f32, m, n, k, x.data(), k, packed.data(), nullptr, y.data(), n, Act::relu, y.data(), n, 2});
  linear({DType::f32, m, n, k, x.data(), k, packed.data(), nullptr, residual.data(), n, Act::relu, fresh.data(), n, 2});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (i == 3) {
        CHECK(std::isnan(y.get(i * n + j)));
      } else {
        CHECK(y.get(i * n + j) == fresh.get(i * n + j));
      }
    }
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
