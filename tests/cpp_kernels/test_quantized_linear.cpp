#include <algorithm>
#include <functional>

#include "exact.h"
#include "quantized_linear.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Case {
  DType dtype;
  int bits;
  int64_t m, n, k, group;
  Act act = Act::none;
  bool offset = true, bias = false, residual = false;
  int64_t x_pad = 0, y_pad = 0, shift = 0;
  int threads = 2;
  bool unequal = false;  // as many groups, of any sizes
};

void check(const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(c.bits);
  CAPTURE(c.group);
  CAPTURE(static_cast<int>(c.dtype));
  const int64_t panels = ceil_div(c.n, kPanel), groups = ceil_div(c.k, c.group);
  const int64_t x_stride = c.k + c.x_pad, y_stride = c.n + c.y_pad;
  const auto extent = [](int64_t rows, int64_t stride, int64_t columns) {
    return rows == 0 ? 0 : (rows - 1) * stride + columns;
  };
  const Buffer x = Buffer::random(c.dtype, extent(c.m, x_stride, c.k), c.shift);
  const Buffer bias = Buffer::random(c.dtype, c.n, c.shift);
  const Buffer residual = Buffer::random(c.dtype, extent(c.m, y_stride, c.n), c.shift);
  const float unit = c.bits == 4 ? 1 / 8.0f : 1 / 128.0f;
  const Buffer scale = Buffer::random(DType::f32, panels * groups * kPanel, 0, -unit, unit);
  const Buffer offset = Buffer::random(DType::f32, panels * groups * kPanel);
  const int64_t row = kPanel * c.bits / 8;
  std::vector<uint8_t> packed(static_cast<size_t>(panels * c.k * row));
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(pick_in(0, 255));
  const auto number = [&](int64_t i, int64_t j) {
    const size_t at = static_cast<size_t>((j / kPanel * c.k + i) * row);
    const size_t column = static_cast<size_t>(j % kPanel);
    if (c.bits == 8) return static_cast<double>(static_cast<int8_t>(packed[at + column]));
    const int byte = packed[at + column % 16];
    return static_cast<double>((column < 16 ? byte & 15 : byte >> 4) - 8);
  };
  std::vector<int32_t> bounds(static_cast<size_t>(groups + 1), static_cast<int32_t>(c.k));
  bounds[0] = 0;
  for (int64_t i = 1; i < groups; ++i) {
    const int64_t at = c.unequal ? pick_in(0, c.k) : i * c.group;
    bounds[static_cast<size_t>(i)] = static_cast<int32_t>(at);
  }
  std::sort(bounds.begin(), bounds.end());
  std::vector<double> dense(static_cast<size_t>(c.k * c.n));
  for (int64_t i = 0, group = 0; i < c.k; ++i) {
    while (i >= bounds[static_cast<size_t>(group + 1)]) ++group;
    for (int64_t j = 0; j < c.n; ++j) {
      const int64_t at = (j / kPanel * groups + group) * kPanel + j % kPanel;
      dense[static_cast<size_t>(i * c.n + j)] = number(i, j) * scale.get(at) + (c.offset ? offset.get(at) : 0.0f);
    }
  }
  Buffer y = Buffer::filled(c.dtype, extent(c.m, y_stride, c.n), std::nanf(""), c.shift);
  QuantizedLinearArgs g = {};
  g.dtype = c.dtype;
  g.m = c.m;
  g.n = c.n;
  g.k = c.k;
  g.x = x.data();
  g.x_stride = x_stride;
  g.bits = c.bits;
  g.group = c.unequal ? 0 : c.group;
  g.bounds = c.unequal ? bounds.data() : nullptr;
  g.bounded = groups;
  g.w_packed = packed.data();
  g.scale = static_cast<const float*>(scale.data());
  g.offset = c.offset ? static_cast<const float*>(offset.data()) : nullptr;
  g.bias = c.bias ? bias.data() : nullptr;
  g.residual = c.residual ? residual.data() : nullptr;
  g.residual_stride = y_stride;
  g.act = c.act;
  g.y = y.data();
  g.y_stride = y_stride;
  g.num_threads = c.threads;
  std::vector<char> scratch(quantized_linear_scratch_bytes(g), '\xff');
  g.scratch = scratch.data();
  quantized_linear(g);
  int64_t wrong = 0;
  const std::vector<double> given = x.numbers();
  for (int64_t i = 0; i < c.m; ++i) {
    std::vector<double> sums(static_cast<size_t>(c.n));
    add_product(sums.data(), given.data() + i * x_stride, dense.data(), 1, c.n, c.k);
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = sums[static_cast<size_t>(j)] + (c.bias ? bias.get(j) : 0.0);
      if (c.residual) sum += residual.get(i * y_stride + j);
      const double expected = reference_act(c.act, sum);
      wrong += !close(y.get(i * y_stride + j), expected, tolerance(c.dtype, expected, 2 * static_cast<double>(c.k)));
    }
    for (int64_t j = c.n; j < y_stride && i + 1 < c.m; ++j) wrong += !std::isnan(y.get(i * y_stride + j));
  }
  CHECK(wrong == 0);
}

TEST_CASE("quantized linear: every number of rows and every activation") {
  for (const DType dtype : kDTypes) {
    for (const int bits : {4, 8}) {
      for (int64_t m = 1; m <= 70; ++m) {
        check({dtype, bits, m, 40, 19, 8, static_cast<Act>(m % 10), m % 3 != 0, true, m % 2 == 0});
      }
      for (int act = 0; act <= 9; ++act) {
        for (const int64_t m : {1, 3, 9}) check({dtype, bits, m, 33, 8, 8, static_cast<Act>(act), act % 2 == 0});
      }
    }
  }
}

TEST_CASE("quantized linear: every number of columns, odd depths and groups that do not divide them") {
  for (const DType dtype : kDTypes) {
    for (const int bits : {4, 8}) {
      for (int64_t n = 1; n <= 70; ++n) {
        check({dtype, bits, pick_in(1, 15), n, pick_in(1, 99), pick_in(1, 40), Act::relu, coin(), coin(), coin(), 3, 1,
               1, 1});
      }
    }
  }
}

TEST_CASE("quantized linear: several pieces of the depth, blocks of rows and panels") {
  for (const DType dtype : kDTypes) {
    for (const int bits : {4, 8}) {
      for (const int64_t m : {1, 2, 3, 4, 5, 17, 150}) {
        check({dtype, bits, m, 197, 1100, 128, random_act(), coin(), coin(), coin(), pick({0, 4}), pick({0, 5}), 1});
      }
      for (const int64_t group : {96, 1030}) check({dtype, bits, 20, 70, 1030, group, Act::none, true});
    }
  }
}

TEST_CASE("quantized linear: groups of unequal sizes, empty ones too") {
  for (const DType dtype : kDTypes) {
    for (const int bits : {4, 8}) {
      for (const int64_t m : {1, 2, 3, 4, 5, 17, 150}) {
        for (const int64_t k : {40, 1100}) {
          Case c = {dtype, bits, m, 69, k, pick_in(4, 300), random_act(), coin(), coin(), coin(), 3, 1, 1};
          c.unequal = true;
          check(c);
        }
      }
    }
  }
  Case nothing = {DType::f32, 4, 3, 7, 0, 32};
  nothing.unequal = true;
  check(nothing);
}

// Rows of x of any magnitudes, without offsets: errors are measured by the sums of magnitudes, as those of float sums,
// and by the greatest element of the row. Kernels multiply it by the number as it is stored, with 8 added, also where
// that means zero, and some round the elements of a group to multiples of a step that it decides.
void check_magnitudes(DType dtype, int64_t m, int64_t group, const std::function<float(int64_t)>& number) {
  const int64_t n = 40, k = 200, groups = ceil_div(k, group), panels = ceil_div(n, kPanel);
  Buffer x(dtype, m * k);
  for (int64_t i = 0; i < m * k; ++i) x.set(i, number(i));
  const Buffer scale = Buffer::random(DType::f32, panels * groups * kPanel, 0, 0.01f, 1);
  std::vector<uint8_t> packed(static_cast<size_t>(panels * k * kPanel / 2));
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(pick_in(0, 255));
  Buffer y = Buffer::filled(DType::f32, m * n, std::nanf(""));
  if (dtype != DType::f32) y = Buffer::filled(dtype, m * n, std::nanf(""));
  QuantizedLinearArgs g = {};
  g.dtype = dtype;
  g.m = m;
  g.n = n;
  g.k = k;
  g.x = x.data();
  g.x_stride = k;
  g.bits = 4;
  g.group = group;
  g.w_packed = packed.data();
  g.scale = static_cast<const float*>(scale.data());
  g.act = Act::none;
  g.y = y.data();
  g.y_stride = n;
  g.num_threads = 1;
  std::vector<char> scratch(quantized_linear_scratch_bytes(g), '\xff');
  g.scratch = scratch.data();
  quantized_linear(g);
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0, greatest = 0, weights = 0;
      for (int64_t p = 0; p < k; ++p) {
        const int byte = packed[static_cast<size_t>((j / kPanel * k + p) * 16 + j % 16)];
        const double q = (j % kPanel < 16 ? byte & 15 : byte >> 4) - 8, value = x.get(i * k + p);
        const double weight = q * scale.get((j / kPanel * groups + p / group) * kPanel + j % kPanel);
        sum += value * weight;
        magnitude += std::abs(value * weight);
        greatest = std::max(greatest, std::abs(value));
        weights += std::abs(weight);
      }
      const double got = y.get(i * n + j);
      if (!std::isfinite(sum)) {
        wrong += std::isfinite(got);
      } else {
        const double rounding = dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 / 250.0 : 1 / 2000.0;
        const double limit = 4e-6 * magnitude + 0x1p-24 * greatest * weights + rounding * std::abs(sum) + 1e-30;
        wrong += !(std::abs(got - sum) <= limit);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("quantized linear: rows of any magnitudes, infinities, nothing but zeros") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t m : {1, 2, 3, 7, 16, 17}) {
      for (const int64_t group : {8, 32, 200}) {
        check_magnitudes(dtype, m, group, [](int64_t) { return 0.0f; });
        check_magnitudes(dtype, m, group, [](int64_t) { return uniform(-1, 1) * 1e-20f; });
        check_magnitudes(dtype, m, group, [](int64_t) { return uniform(-1, 1) * 1e34f; });
        check_magnitudes(dtype, m, group, [](int64_t i) { return uniform(-1, 1) * (i % 50 == 7 ? 4096.0f : 1.0f); });
        check_magnitudes(dtype, m, group, [](int64_t) { return std::exp2(uniform(-20, 20)); });
        check_magnitudes(dtype, m, group, [](int64_t i) { return i % 173 == 5 ? INFINITY : uniform(-1, 1); });
        check_magnitudes(dtype, m, group, [](int64_t i) { return i == 3 ? std::nanf("") : uniform(-1, 1); });
      }
    }
  }
}

TEST_CASE("quantized linear: nothing to do, nothing to sum") {
  for (const int bits : {4, 8}) {
    check({DType::f32, bits, 0, 5, 4, 4});
    check({DType::f32, bits, 5, 0, 4, 4});
    for (const int64_t m : {1, 5}) check({DType::f32, bits, m, 7, 0, 32, Act::relu, true, true, true});
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
