#include <cfenv>
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
  CHECK(worst([](vf x) { return vsigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, -80.0f, 80.0f) < 4.0);
}

TEST_CASE("exponentials of masked scores are 0, and nothing below the normal range comes up on the way") {
  const auto function = [](vf x) { return vexp_nonpositive(x); };
  CHECK(worst(function, [](double x) { return std::exp(x); }, -87.0f, 0.0f) < 2.0);
  for (const float x : {-87.5f, -88.0f, -95.0f, -103.0f, -104.0f, -1e4f, -3.4e38f, -kInf}) {
    std::feclearexcept(FE_ALL_EXCEPT);
    const float result = one(function, x);
    CHECK(std::fetestexcept(FE_UNDERFLOW) == 0);
    CHECK(result == 0.0f);
  }
  CHECK(one(function, 0.0f) == 1.0f);
  CHECK(std::isnan(one(function, kNaN)));
}

TEST_CASE("vector functions at the ends") {
  const auto fexp = [](vf x) { return vexp(x); };
  const auto ftanh = [](vf x) { return vtanh(x); };
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
    CHECK(one(fsigmoid, x) == 1.0f);
  }
  CHECK(one(fsigmoid, -kInf) == 0.0f);
  CHECK(std::isnan(one(ftanh, kNaN)));
  CHECK(std::isnan(one(fsigmoid, kNaN)));
  CHECK(std::signbit(one(ftanh, -0.0f)));
  CHECK(one(ftanh, 1e-40f) == 1e-40f);
}

TEST_CASE("gelu over all floats") {
  constexpr uint32_t kStep = 1021;  // a prime: all mantissas' ends, all exponents
  double below = 0, above = 0;
  int64_t wrong = 0;
  for (uint64_t first = 0; first < uint64_t{1} << 32; first += kStep * kWidth) {
    float x[kWidth], got[kWidth];
    for (int i = 0; i < kWidth; ++i) {
      const uint32_t bits = static_cast<uint32_t>(first + static_cast<uint64_t>(i) * kStep);
      std::memcpy(&x[i], &bits, sizeof bits);
    }
    store(got, vgelu(load(x)));
    for (int i = 0; i < kWidth; ++i) {
      if (std::isnan(x[i])) {
        wrong += !std::isnan(got[i]);
        continue;
      }
      const double expected = 0.5 * x[i] * std::erfc(-x[i] * std::sqrt(0.5));  // no cancellation
      const double error = std::abs(got[i] - expected);
      wrong += !std::isfinite(got[i]);
      if (x[i] < 0) {
        below = std::max(below, error);
      } else {
        above = std::max(above, error / ulp(static_cast<float>(expected)));
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(below < 1e-7);
  CHECK(above < 4.0);
  const auto gelu = [](vf x) { return vgelu(x); };
  CHECK(one(gelu, kInf) == kInf);
  CHECK(std::isnan(one(gelu, -kInf)));  // as in torch: infinity times zero
  CHECK(std::isnan(one(gelu, kNaN)));
  CHECK(std::signbit(one(gelu, -0.0f)));
  CHECK(one(gelu, -30.0f) == 0.0f);
  CHECK(one(gelu, std::numeric_limits<float>::lowest()) == 0.0f);
  CHECK(one(gelu, std::numeric_limits<float>::max()) == std::numeric_limits<float>::max());
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

// Conversions one by one, in vectors and in fours; all must agree, but for the payload of NaN.
template <class T>
uint16_t narrowed(float x) {
  T scalar, vector[kWidth];
  from_float(x, &scalar);
  store(vector, vset(x));
  for (int i = 0; i < kWidth; ++i) {
    const bool same = std::isnan(x) ? std::isnan(to_float(vector[i])) : vector[i].bits == scalar.bits;
    if (!same) FAIL_CHECK("lane ", i, " of ", x, ": ", vector[i].bits, " and ", scalar.bits);
  }
  return scalar.bits;
}

template <class T>
void check_half(int fraction_bits, int bias) {
  const auto sure = [&](uint32_t bits) {  // by the definition of the formats
    const int exponent = static_cast<int>((bits & 0x7fffu) >> fraction_bits);
    const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1u), -fraction_bits);
    const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return bits & 0x8000u ? -size : size;
  };
  const uint32_t infinity = 0x7fffu >> fraction_bits << fraction_bits;
  int64_t wrong = 0;
  for (uint32_t first = 0; first < 65536; first += kWidth) {
    T in[kWidth], out[kWidth];
    float wide[kWidth], four[4];
    for (int i = 0; i < kWidth; ++i) in[i].bits = static_cast<uint16_t>(first + static_cast<uint32_t>(i));
    store(wide, load(in));
    store(out, load(in));
    std::memcpy(four, &static_cast<const detail::v4&>(detail::load4(in)), sizeof four);
    for (int i = 0; i < kWidth; ++i) {
      const uint32_t bits = in[i].bits, size = bits & 0x7fffu;
      if (size > infinity) {
        wrong += !std::isnan(to_float(in[i])) || !std::isnan(wide[i]) || (i < 4 && !std::isnan(four[i]));
        continue;
      }
      const double expected = size == infinity ? (bits & 0x8000u ? -kInf : kInf) : sure(bits);
      wrong += to_float(in[i]) != expected || wide[i] != expected || (i < 4 && four[i] != expected);
      wrong += std::signbit(wide[i]) != std::signbit(expected) || out[i].bits != bits;
    }
  }
  CHECK(wrong == 0);
  // Around the middle between neighbours: the nearest, or the even one.
  for (uint32_t low = 0; low < infinity; ++low) {
    // Beyond the greatest number the next step of the same size stands for infinity.
    const double above = low + 1 == infinity ? 2 * sure(low) - sure(low - 1) : sure(low + 1);
    const float middle = static_cast<float>((sure(low) + above) / 2);
    wrong += narrowed<T>(middle) != (low % 2 == 0 ? low : low + 1);
    wrong += narrowed<T>(std::nextafter(middle, 0.0f)) != low;
    wrong += narrowed<T>(std::nextafter(middle, kInf)) != low + 1;
    wrong += narrowed<T>(-std::nextafter(middle, kInf)) != (0x8000u | (low + 1));
  }
  CHECK(wrong == 0);
  CHECK(narrowed<T>(kInf) == infinity);
  CHECK(narrowed<T>(-kInf) == (0x8000u | infinity));
  CHECK(narrowed<T>(std::numeric_limits<float>::max()) == infinity);
  CHECK(narrowed<T>(-0.0f) == 0x8000u);
  CHECK((narrowed<T>(kNaN) & 0x7fffu) > infinity);
}

TEST_CASE("bfloat16: every value, rounding to nearest even") { check_half<bf16>(7, 127); }
TEST_CASE("float16: every value, subnormals, rounding to nearest even") { check_half<f16>(10, 15); }

TEST_CASE("halves by integer arithmetic, as where there are no instructions for them") {
  for (uint32_t first = 0; first < 65536; first += kWidth) {
    f16 in[kWidth];
    for (int i = 0; i < kWidth; ++i) in[i].bits = static_cast<uint16_t>(first + static_cast<uint32_t>(i));
    vh bits;
    std::memcpy(&bits, in, sizeof in);
    const vf wide = detail::f16_widen<vf, vu>(bits);
    const vh back = detail::f16_narrow<vu, vh>(wide);
    for (int i = 0; i < kWidth; ++i) {
      const float expected = to_float(in[i]);
      CHECK((std::isnan(expected) ? std::isnan(wide[i]) : wide[i] == expected && back[i] == bits[i]));
    }
  }
  for (int i = 0; i < 2000; ++i) {
    vu random;
    for (int lane = 0; lane < kWidth; ++lane) random[lane] = static_cast<uint32_t>(rng()());
    // Exponents about those of the format.
    const vf x = reinterpret_cast<vf>(i % 2 == 0 ? random : (random & 0x8fffffffu) + 0x30000000u);
    const vh got = detail::f16_narrow<vu, vh>(x);
    for (int lane = 0; lane < kWidth; ++lane) {
      f16 expected;
      from_float(x[lane], &expected);
      CHECK(got[lane] == expected.bits);
    }
  }
}

template <class T>
void check_partial(int n) {
  T two, five;
  from_float(2.0f, &two);
  from_float(5.0f, &five);
  std::vector<T> in(static_cast<size_t>(n), two), out(static_cast<size_t>(n) + 1, two);
  float all[kWidth];
  store(all, load_partial(in.data(), n));
  for (int i = 0; i < kWidth; ++i) CHECK(all[i] == (i < n ? 2.0f : 0.0f));
  store_partial(out.data(), vset(5.0f), n);
  CHECK(to_float(out[static_cast<size_t>(n) - 1]) == 5.0f);
  CHECK(to_float(out[static_cast<size_t>(n)]) == 2.0f);
}

TEST_CASE("partial loads and stores touch only their elements") {
  for (int n = 1; n < kWidth; ++n) {
    check_partial<float>(n);
    check_partial<bf16>(n);
    check_partial<f16>(n);
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
