#include "layer_norm.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

// Of rows whose mean is far from zero, which single sums in float lose.
void check(DType dtype, int64_t rows, int64_t k, float mean, int threads) {
  CAPTURE(dtype_name(dtype));
  CAPTURE(rows);
  CAPTURE(k);
  CAPTURE(mean);
  const int64_t stride = k + pick({0, 1, 7}), offset = pick({0, 1, 3});
  const Buffer x = Buffer::random(dtype, rows * k, 0, mean - 1, mean + 1);
  const Buffer spread = spread_rows(x, k, stride, offset);
  const Buffer weight = Buffer::random(dtype, k, offset, -2, 2), bias = Buffer::random(dtype, k, offset);
  const bool weighted = coin(), biased = coin();
  const float eps = coin() ? 1e-5f : 0.25f;
  Buffer y = Buffer::filled(dtype, rows * k, NAN, offset);
  layer_norm({dtype, rows, k, spread.data(), stride, weighted ? weight.data() : nullptr, biased ? bias.data() : nullptr,
              eps, y.data(), threads});
  const double unit = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 8e-3 : 1e-3;
  double worst = 0;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < k; ++i) sum += x.get(row * k + i);
    const double center = sum / static_cast<double>(k);
    for (int64_t i = 0; i < k; ++i) squares += std::pow(x.get(row * k + i) - center, 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(k) + eps);
    for (int64_t i = 0; i < k; ++i) {
      const double normal = (x.get(row * k + i) - center) * scale;
      const double want = normal * (weighted ? weight.get(i) : 1) + (biased ? bias.get(i) : 0);
      const double error = std::abs(y.get(row * k + i) - want) / (std::abs(normal) * 2 + 1);
      worst = error <= worst ? worst : error;  // NaN too
    }
  }
  CHECK(worst <= unit);
}

TEST_CASE("layer_norm: dtypes, tails, strides, means and threads") {
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {1, 2, 15, 16, 17, 63, 64, 65, 100, 384, 1023}) {
      for (const int64_t rows : {0, 1, 5, 40}) {
        for (const float mean : {0.0f, 3.0f}) check(dtype, rows, k, mean, static_cast<int>(pick({1, 2, 3})));
      }
    }
  }
  for (const int64_t k : {768, 1000}) check(DType::f32, 200, k, 1000.0f, 2);
}

TEST_CASE("layer_norm: rows that are alike, infinite and none") {
  Buffer x = Buffer::filled(DType::f32, 3 * 20, 7.0f), y(DType::f32, 3 * 20);
  x.set(25, INFINITY);
  x.set(45, NAN);
  layer_norm({DType::f32, 3, 20, x.data(), 20, nullptr, nullptr, 1e-5f, y.data(), 1});
  for (int64_t i = 0; i < 20; ++i) {
    CHECK(y.get(i) == 0.0f);
    CHECK(std::isnan(y.get(20 + i)));
    CHECK(std::isnan(y.get(40 + i)));
  }
  layer_norm({DType::f32, 3, 0, x.data(), 0, nullptr, nullptr, 1e-5f, y.data(), 1});
}

}  // namespace
}  // namespace aotpack::kernels::test
