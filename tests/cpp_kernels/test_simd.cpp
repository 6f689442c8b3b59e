#include <limits>

#include "simd.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

using Exact = double (*)(double);

float ulp(float x) {
  x = std::abs(x);
  return std::max(std::nextafter(x, std::numeric_limits<float>::infinity()) - x,
                  std::numeric_limits<float>::denorm_min());
}

// The greatest error in units in the last place over a walk through all magnitudes.
template <class Function>
double worst(Function function, Exact exact, float low, float high) {
  double most = 0;
  std::vector<float> points;
  for (float magnitude = 1e-38f; magnitude < 1e4f; magnitude *= 1.0037f) {
    points.push_back(magnitude);
    points.push_back(-magnitude);
  }
  for (int i = 0; i <= 200000; ++i) points.push_back(low + (high - low) * static_cast<float>(i) / 200000.0f);
  for (size_t i = 0; i + kWidth <= points.size(); i += kWidth) {
    float got[kWidth];
    store(got, function(load(points.data() + i)));
    for (int j = 0; j < kWidth; ++j) {
      const float x = points[i + static_cast<size_t>(j)];
      if (x < low || x > high) continue;
      const double expected = exact(x);
      const double error = std::abs(got[j] - expected) / ulp(static_cast<float>(expected));
      if (error > most) most = error;
    }
  }
  return most;
}

float one(vf (*function)(vf), float x) {
  float all[kWidth];
  store(all, function(vset(x)));
  return all[kWidth - 1];
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("vector functions are within a few ulp over their range") {
  CHECK(worst([](vf x) { return vexp(x); }, [](double x) { return std::exp(x); }, -104.0f, 88.7f) < 2.0);
  CHECK(worst([](vf x) { return vtanh(x); }, [](double x) { return std::tanh(x); }, -12.0f, 12.0f) < 4.0);
  CHECK(worst([](vf x) { return verf(x); }, [](double x) { return std::erf(x); }, -6.0f, 6.0f) < 4.0);
  CHECK(worst([](vf x) { return vsigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, -80.0f, 80.0f) < 4.0);
}

TEST_CASE("vector functions at the ends") {
  const auto fexp = [](vf x) { return vexp(x); };
  const auto ftanh = [](vf x) { return vtanh(x); };
  const auto ferf = [](vf x) { return verf(x); };
  const auto fsigmoid = [](vf x) { return vsigmoid(x); };
  CHECK(one(fexp, kInf) == kInf);
  CHECK(one(fexp, -kInf) == 0.0f);
  CHECK(one(fexp, 0.0f) == 1.0f);
  CHECK(one(fexp, -200.0f) == 0.0f);
  CHECK(one(fexp, 100.0f) == kInf);
  CHECK(one(fexp, -100.0f) == doctest::Approx(3.78e-44).epsilon(0.05));  // below the normal range
  CHECK(std::isnan(one(fexp, kNaN)));
  for (const float x : {kInf, 50.0f}) {
    CHECK(one(ftanh, x) == 1.0f);
    CHECK(one(ftanh, -x) == -1.0f);
    CHECK(one(ferf, x) == 1.0f);
    CHECK(one(ferf, -x) == -1.0f);
    CHECK(one(fsigmoid, x) == 1.0f);
  }
  CHECK(one(fsigmoid, -kInf) == 0.0f);
  CHECK(std::isnan(one(ftanh, kNaN)));
  CHECK(std::isnan(one(ferf, kNaN)));
  CHECK(std::isnan(one(fsigmoid, kNaN)));
  CHECK(std::signbit(one(ftanh, -0.0f)));
  CHECK(std::signbit(one(ferf, -0.0f)));
  CHECK(one(ftanh, 1e-40f) == 1e-40f);
}

TEST_CASE("activations let NaN through and clamp") {
  for (int i = 0; i <= 9; ++i) {
    CAPTURE(i);
    const auto run = [&](float x) {
      switch (static_cast<Act>(i)) {
        case Act::none:
          return one([](vf v) { return apply<Act::none>(v); }, x);
        case Act::relu:
          return one([](vf v) { return apply<Act::relu>(v); }, x);
        case Act::gelu:
          return one([](vf v) { return apply<Act::gelu>(v); }, x);
        case Act::gelu_tanh:
          return one([](vf v) { return apply<Act::gelu_tanh>(v); }, x);
        case Act::silu:
          return one([](vf v) { return apply<Act::silu>(v); }, x);
        case Act::sigmoid:
          return one([](vf v) { return apply<Act::sigmoid>(v); }, x);
        case Act::tanh:
          return one([](vf v) { return apply<Act::tanh>(v); }, x);
        case Act::hardswish:
          return one([](vf v) { return apply<Act::hardswish>(v); }, x);
        case Act::relu6:
          return one([](vf v) { return apply<Act::relu6>(v); }, x);
        case Act::hardsigmoid:
          return one([](vf v) { return apply<Act::hardsigmoid>(v); }, x);
      }
      return 0.0f;
    };
    CHECK(std::isnan(run(kNaN)));
    for (float x = -9.0f; x <= 9.0f; x += 0.37f) {
      const double expected = reference_act(static_cast<Act>(i), x);
      CHECK(std::abs(run(x) - expected) <= 1e-6 + 1e-6 * std::abs(expected));
    }
  }
}

TEST_CASE("bfloat16 conversion rounds to nearest even, in vectors as in scalars") {
  const float cases[] = {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 3.4e38f, kInf, -kInf, kNaN, 1e-40f, -1.5f};
  CHECK(bf16_to_float(float_to_bf16(1.00390625f)) == 1.0f);       // a tie: to the even one, below
  CHECK(bf16_to_float(float_to_bf16(1.01171875f)) == 1.015625f);  // a tie: to the even one, above
  CHECK(bf16_to_float(float_to_bf16(3.4e38f)) == kInf);
  for (const float x : cases) {
    uint16_t got[kWidth];
    store(got, vset(x));
    CHECK(got[0] == float_to_bf16(x));
    if (std::isnan(x)) CHECK(std::isnan(bf16_to_float(got[0])));
  }
  for (uint32_t bits = 0; bits < 65536; bits += kWidth) {  // what is exact stays as it is
    uint16_t in[kWidth], out[kWidth];
    for (int i = 0; i < kWidth; ++i) in[i] = static_cast<uint16_t>(bits + static_cast<uint32_t>(i));
    store(out, load(in));
    for (int i = 0; i < kWidth; ++i) {
      if (!std::isnan(bf16_to_float(in[i]))) CHECK(out[i] == in[i]);
    }
  }
}

TEST_CASE("partial loads and stores touch only their elements") {
  for (int n = 1; n < kWidth; ++n) {
    std::vector<float> in(static_cast<size_t>(n), 2.0f), out(static_cast<size_t>(n) + 1, -1.0f);
    float all[kWidth];
    store(all, load_partial(in.data(), n));
    for (int i = 0; i < kWidth; ++i) CHECK(all[i] == (i < n ? 2.0f : 0.0f));
    store_partial(out.data(), vset(5.0f), n);
    CHECK(out[static_cast<size_t>(n) - 1] == 5.0f);
    CHECK(out[static_cast<size_t>(n)] == -1.0f);
    std::vector<uint16_t> in16(static_cast<size_t>(n), float_to_bf16(2.0f)), out16(static_cast<size_t>(n) + 1, 7);
    store(all, load_partial(in16.data(), n));
    for (int i = 0; i < kWidth; ++i) CHECK(all[i] == (i < n ? 2.0f : 0.0f));
    store_partial(out16.data(), vset(5.0f), n);
    CHECK(out16[static_cast<size_t>(n) - 1] == float_to_bf16(5.0f));
    CHECK(out16[static_cast<size_t>(n)] == 7);
  }
}

TEST_CASE("reductions of a vector") {
  float all[kWidth];
  for (int i = 0; i < kWidth; ++i) all[i] = static_cast<float>(i);
  CHECK(sum_of(load(all)) == kWidth * (kWidth - 1) / 2);
  CHECK(max_of(load(all)) == kWidth - 1);
  all[1] = kNaN;
  CHECK(std::isnan(max_of(load(all))));
}

}  // namespace
}  // namespace aotpack::kernels::test
