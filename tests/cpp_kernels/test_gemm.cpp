#include <cmath>
#include <limits>

#include "exact.h"
#include "gemm.h"
#include "gemm_plain.h"
#include "rounding.h"
#include "turns.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Matrix {
  int64_t batch, row, col, extent;
};

// Strides of `batch` matrices rows x cols: in either order, with room in between, or one matrix for all.
Matrix layout(int64_t batch, int64_t rows, int64_t cols, bool transposed, int64_t pad, bool repeat, int64_t step = 1) {
  Matrix m;
  m.row = transposed ? step : cols * step + pad;
  m.col = transposed ? rows * step + pad : step;
  const int64_t one = rows == 0 || cols == 0 ? 0 : (rows - 1) * m.row + (cols - 1) * m.col + 1;
  m.batch = repeat ? 0 : one + pad;
  m.extent = one == 0 || batch == 0 ? 0 : (batch - 1) * m.batch + one;
  return m;
}

struct Case {
  DType dtype;
  int64_t batch, m, n, k;
  bool ta = false, tb = false, ty = false;
  float alpha = 1, beta = 0;
  int bias = 0;  // 0 none, 1 row, 2 column, 3 whole, 4 scalar
  int64_t pad = 0, step = 1, offset = 0;
  bool repeat_a = false, repeat_b = false;
  int threads = 2;
  Knobs knobs = {};
  float holes = 0.5f;  // what lies between the elements of a and b
};

// Random numbers with `c.holes` between them.
Buffer spread(DType dtype, const Matrix& matrix, int64_t batch, int64_t rows, int64_t columns, const Case& c) {
  Buffer b = Buffer::filled(dtype, matrix.extent, c.holes, c.offset);
  for (int64_t i = 0; i < (matrix.batch == 0 ? min64(batch, 1) : batch); ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) b.set(i * matrix.batch + r * matrix.row + j * matrix.col, uniform(-1, 1));
    }
  }
  return b;
}

// A matrix of a batch, its rows one after the other.
std::vector<double> dense(const Buffer& from, const Matrix& matrix, int64_t index, int64_t rows, int64_t columns) {
  std::vector<double> all;
  all.reserve(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      all.push_back(from.get(index * matrix.batch + r * matrix.row + j * matrix.col));
    }
  }
  return all;
}

void check(const Case& c) {
  CAPTURE(c.batch);
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(c.ta);
  CAPTURE(c.tb);
  CAPTURE(c.ty);
  CAPTURE(c.bias);
  CAPTURE(c.step);
  CAPTURE(static_cast<int>(c.dtype));
  CAPTURE(c.knobs.bits);
  const Matrix ma = layout(c.batch, c.m, c.k, c.ta, c.pad, c.repeat_a, c.step);
  const Matrix mb = layout(c.batch, c.k, c.n, c.tb, c.pad, c.repeat_b, c.step);
  const Matrix my = layout(c.batch, c.m, c.n, c.ty, c.pad, false, c.step);
  Matrix mi = layout(c.batch, c.m, c.n, false, 0, false);
  if (c.bias == 1) mi = {0, 0, 1, c.n};
  if (c.bias == 2) mi = {0, 1, 0, c.m};
  if (c.bias == 4) mi = {0, 0, 0, 1};
  const Buffer a = spread(c.dtype, ma, c.batch, c.m, c.k, c), b = spread(c.dtype, mb, c.batch, c.k, c.n, c);
  const Buffer bias = Buffer::random(c.dtype, mi.extent, c.offset);
  Buffer y = Buffer::filled(c.dtype, my.extent, -77.0f, c.offset);
  GemmArgs g = {c.dtype,  c.batch, c.m,       c.n,      c.k,    a.data(), ma.batch,
                ma.row,   ma.col,  b.data(),  mb.batch, mb.row, mb.col,   c.bias == 0 ? nullptr : bias.data(),
                mi.batch, mi.row,  mi.col,    c.alpha,  c.beta, y.data(), my.batch,
                my.row,   my.col,  c.threads, nullptr,  c.knobs};
  std::vector<unsigned char> scratch(gemm_scratch_bytes(g), 0xff);
  g.scratch = scratch.data();
  gemm(g);
  int64_t wrong = 0, written = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    std::vector<double> sums(static_cast<size_t>(c.m * c.n));
    add_product(sums.data(), dense(a, ma, i, c.m, c.k).data(), dense(b, mb, i, c.k, c.n).data(), c.m, c.n, c.k);
    for (int64_t r = 0; r < c.m; ++r) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = c.alpha * sums[static_cast<size_t>(r * c.n + j)];
        if (c.bias != 0 && c.beta != 0) sum += c.beta * bias.get(i * mi.batch + r * mi.row + j * mi.col);
        const double got = y.get(i * my.batch + r * my.row + j * my.col);
        wrong += !close(got, sum, tolerance(c.dtype, sum, 2.0 * static_cast<double>(c.k)));
        ++written;
      }
    }
  }
  CHECK(wrong == 0);
  for (int64_t i = 0; i < my.extent; ++i) written -= y.get(i) != -77.0f;
  CHECK(written <= 0);  // nothing between the rows was touched (-77 itself is out of reach)
  CHECK(written >= 0);
}

TEST_CASE("gemm: the transpositions, few rows, few columns") {
  for (const DType dtype : kDTypes) {
    for (int mask = 0; mask < 8; ++mask) {
      const bool ta = mask & 1, tb = mask & 2, ty = mask & 4;
      for (const int64_t m : {1, 2, 4, 5, 17, 40}) {
        for (const int64_t n : {1, 3, 5, 32, 67}) {
          check({dtype, 2, m, n, 21, ta, tb, ty});
          check({dtype, 1, m, n, 33, ta, tb, ty, 0.5f, 2.0f, 1 + mask % 4});
        }
      }
    }
  }
}

TEST_CASE("gemm: several pieces of k, aliasing rows, many threads") {
  for (const DType dtype : kDTypes) {
    check({dtype, 1, 250, 300, 1100, false, false, false, 1, 1, 3, 0, 1, 0, false, false, 3});
    check({dtype, 1, 30, 70, 2100, true, true, false, 0.25f, 1, 1});
    check({dtype, 1, 3, 70, 2100, false, true, false, 1, 1, 1});
    check({dtype, 1, 2, 300, 2100, false, false, false, 1, 1, 2, 0, 1, 0, false, false, 4});
    check({dtype, 1, 100, 2, 1500, false, false, false, 1, 0, 0});
    check({dtype, 1, 40, 40, 512, false, true, false});
    check({dtype, 13, 20, 40, 64, false, true, false, 1, 0, 0, 0, 1, 0, false, false, 3});
    check({dtype, 3, 120, 140, 64, false, true, false, 1, 0, 0, 0, 1, 0, false, false, 2});
  }
}

TEST_CASE("gemm: what lies between rows is not read") {
  for (const DType dtype : kDTypes) {
    for (int mask = 0; mask < 4; ++mask) {
      for (const int64_t k : {1, 2, 31, 33, 64, 65, 95, 513, 1055}) {
        Case c = {dtype, 2, 7 + k % 40, 5 + k % 70, k, (mask & 1) != 0, (mask & 2) != 0};
        c.pad = 1 + k % 5;
        c.step = k % 2 == 0 ? 3 : 1;
        c.offset = 1;
        c.holes = std::nanf("");
        check(c);
      }
    }
  }
}

TEST_CASE("gemm: rows and columns around whole tiles") {
  for (int mask = 0; mask < 8; ++mask) {
    for (int64_t m = 5; m <= 34; ++m) {
      check({DType::bf16, 1, m, 28 + m % 9, 60 + m % 7, (mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0});
    }
    check({DType::bf16, 1, 470, 300, 1100, (mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0, 0.5f, 1, 1 + mask % 4});
    check({DType::bf16, 1, 40, 9000, 40, (mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0});
    check({DType::bf16, 3, 9, 40, 0, (mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0, 1, 1, 3});
  }
}

// Of the sums of 50000 products, of their root mean square: one after the other they are off by 4e-6.
TEST_CASE("gemm: every position of every knob") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c :
         {Case{dtype, 1, 17, 67, 1100}, Case{dtype, 3, 15, 70, 200, true, false, false, 0.5f, 2.0f, 1},
          Case{dtype, 1, 3, 140, 230, false, true}, Case{dtype, 2, 2, 300, 40, false, false, false, 1, 1, 2},
          Case{dtype, 1, 29, 420, 40, false, true, true, 1, 0, 0, 1, 1, 1}}) {
      const int threads = c.batch == 1 ? 4 : 3;
      GemmArgs g = {};
      g.dtype = dtype;
      g.batch = c.batch;
      g.m = c.m;
      g.n = c.n;
      g.k = c.k;
      g.num_threads = threads;
      for (const Knobs knobs : turns_of(gemm_knobs(g))) {
        Case turned = c;
        turned.knobs = knobs;
        turned.threads = threads;
        check(turned);
      }
    }
  }
}

TEST_CASE("gemm: rounding does not grow with the depth") {
  for (const int64_t m : {2, 14, 40}) {
    const int64_t n = 48, k = 50000;
    const Buffer a = Buffer::random(DType::f32, m * k), b = Buffer::random(DType::f32, k * n);
    const Buffer bias = Buffer::random(DType::f32, n);
    Buffer y = Buffer::filled(DType::f32, m * n, -77.0f);
    std::vector<double> exact(static_cast<size_t>(m * n));
    add_product(exact.data(), a.numbers().data(), b.numbers().data(), m, n, k);
    for (const bool biased : {false, true}) {
      GemmArgs g = {
          DType::f32, 1, m, n,    k,    a.data(), 0, k, 1, b.data(), 0,      n, 1, biased ? bias.data() : nullptr,
          0,          0, 1, 1.0f, 1.0f, y.data(), 0, n, 1, 2,        nullptr};
      std::vector<unsigned char> scratch(gemm_scratch_bytes(g), 0xff);
      g.scratch = scratch.data();
      gemm(g);
      const double error = relative_error(y, m, n, [&](int64_t r, int64_t j) {
        return exact[static_cast<size_t>(r * n + j)] + (biased ? bias.get(j) : 0);
      });
      CAPTURE(m);
      CHECK(error < 1.5e-6);
    }
  }
}

TEST_CASE("gemm: nothing to do, nothing to sum") {
  for (const DType dtype : kDTypes) {
    check({dtype, 0, 5, 6, 7});
    check({dtype, 2, 0, 6, 7});
    check({dtype, 2, 5, 0, 7});
    check({dtype, 2, 5, 6, 0});
    check({dtype, 2, 5, 6, 0, false, false, false, 1, 1, 3});
    check({dtype, 2, 1, 6, 0, false, true, false, 1, 1, 3});
    check({dtype, 1, 1, 1, 1});
  }
}

TEST_CASE("gemm: random shapes and strides") {
  for (int i = 0; i < 400; ++i) {
    check({random_dtype(), pick_in(0, 4), pick_in(0, 45), pick_in(0, 80), pick_in(0, 70), coin(), coin(), coin(),
           pick({1, 1, 2}) * 0.5f + 0.5f, static_cast<float>(pick({0, 1, 1, -2})), static_cast<int>(pick_in(0, 4)),
           pick({0, 0, 1, 5}), pick({1, 1, 1, 2}), pick({0, 1, 3}), coin(), coin(), static_cast<int>(pick_in(1, 4))});
  }
}

TEST_CASE("gemm: beta 0 does not read the bias; y may be the bias") {
  const int64_t m = 9, n = 40, k = 8;
  const Buffer a = Buffer::random(DType::f32, m * k), b = Buffer::random(DType::f32, k * n);
  const Buffer nan = Buffer::filled(DType::f32, m * n, std::numeric_limits<float>::quiet_NaN());
  Buffer y(DType::f32, m * n);
  GemmArgs g = {DType::f32, 1, m, n, k,    a.data(), 0,        k, 1, b.data(), 0, n,      1,
                nan.data(), 0, n, 1, 1.0f, 0.0f,     y.data(), 0, n, 1,        1, nullptr};
  std::vector<unsigned char> scratch(gemm_scratch_bytes(g));
  g.scratch = scratch.data();
  gemm(g);
  for (int64_t i = 0; i < m * n; ++i) CHECK(!std::isnan(y.get(i)));
  Buffer sum = Buffer::filled(DType::f32, m * n, 3.0f);
  g.bias = sum.data();
  g.y = sum.data();
  g.beta = 1.0f;
  gemm(g);
  for (int64_t i = 0; i < m * n; ++i) CHECK(sum.get(i) == doctest::Approx(y.get(i) + 3.0f));
}

template <class X, class Y>
void check_plain(int64_t batch, int64_t m, int64_t n, int64_t k, bool biased) {
  std::vector<X> a(static_cast<size_t>(batch * m * k)), b(static_cast<size_t>(k * n));
  std::vector<Y> bias(static_cast<size_t>(n)), y(static_cast<size_t>(batch * m * n), Y(99));
  for (auto& v : a) v = static_cast<X>(pick_in(-100, 100));
  for (auto& v : b) v = static_cast<X>(pick_in(-100, 100));
  for (auto& v : bias) v = static_cast<Y>(pick_in(-100, 100));
  PlainGemmArgs<X, Y> g = {
      batch, m, n, k,    a.data(), m * k,    k,     1, b.data(), 0, 1, k, biased ? bias.data() : nullptr,
      0,     0, 1, Y(2), Y(3),     y.data(), m * n, n, 1,        2};
  gemm_plain(g);
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        Y sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          sum += static_cast<Y>(a[static_cast<size_t>((i * m + r) * k + p)]) *
                 static_cast<Y>(b[static_cast<size_t>(j * k + p)]);
        }
        const Y expected = Y(2) * sum + (biased ? Y(3) * bias[static_cast<size_t>(j)] : Y(0));
        CHECK(y[static_cast<size_t>((i * m + r) * n + j)] == expected);
      }
    }
  }
}

TEST_CASE("gemm: double and integers") {
  for (const bool biased : {false, true}) {
    check_plain<double, double>(2, 5, 70, 9, biased);
    check_plain<int64_t, int64_t>(2, 5, 70, 9, biased);
    check_plain<int32_t, int32_t>(1, 1, 3, 0, biased);
    check_plain<int8_t, int32_t>(3, 4, 130, 40, biased);
  }
  const int32_t big = std::numeric_limits<int32_t>::max();
  int32_t y = 0;
  PlainGemmArgs<int32_t> g = {1, 1, 1, 1, &big, 0, 1, 1, &big, 0, 1, 1, nullptr, 0, 0, 0, 1, 0, &y, 0, 1, 1, 1};
  gemm_int(g);
  CHECK(y == 1);  // wraps
  double x = 3, z = 0;
  PlainGemmArgs<double> f = {1, 1, 1, 1, &x, 0, 1, 1, &x, 0, 1, 1, nullptr, 0, 0, 0, 1, 0, &z, 0, 1, 1, 1};
  gemm_f64(f);
  CHECK(z == 9.0);
}

}  // namespace
}  // namespace aotpack::kernels::test
