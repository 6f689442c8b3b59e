// Measures csrc/module/vecmath against wider types: prints a JSON object, function → {ulp, at, nanoseconds, libm}.
//   vecmath_driver STEP [RANDOM]   goes through every STEP-th bit pattern of float; doubles and pairs are random,
//   RANDOM of them, and all meet the special values. With RANDOM no times are measured, as on an emulated processor.
// Built once per width: LANES is the number of floats in a vector.
#include <sleef.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <quadmath.h>
#endif

namespace {

#if LANES == 16
#define F32_NAME(name, bound) Sleef_##name##f16##bound
#define F64_NAME(name, bound) Sleef_##name##d8##bound
using VectorF = __m512;
using VectorD = __m512d;
#elif LANES == 8 && defined(__ARM_FEATURE_SVE)
#define F32_NAME(name, bound) Sleef_##name##fx##bound##sve
#define F64_NAME(name, bound) Sleef_##name##dx##bound##sve
// Of functions without a bound.
#define Sleef_fmodfxsve Sleef_fmodfx_sve
#define Sleef_fmoddxsve Sleef_fmoddx_sve
#define Sleef_nextafterfxsve Sleef_nextafterfx_sve
#define Sleef_nextafterdxsve Sleef_nextafterdx_sve
#define Sleef_copysignfxsve Sleef_copysignfx_sve
#define Sleef_copysigndxsve Sleef_copysigndx_sve
typedef svfloat32_t VectorF __attribute__((arm_sve_vector_bits(256)));
typedef svfloat64_t VectorD __attribute__((arm_sve_vector_bits(256)));
#elif LANES == 8
#define F32_NAME(name, bound) Sleef_##name##f8##bound
#define F64_NAME(name, bound) Sleef_##name##d4##bound
using VectorF = __m256;
using VectorD = __m256d;
#else
#define F32_NAME(name, bound) Sleef_##name##f4##bound
#define F64_NAME(name, bound) Sleef_##name##d2##bound
#if defined(__aarch64__)
using VectorF = float32x4_t;
using VectorD = float64x2_t;
#else
using VectorF = __m128;
using VectorD = __m128d;
#endif
#endif

// What results are held against: double for float; for double quadruple precision, so that nothing is measured against
// itself.
#if defined(__x86_64__)
using Quad = __float128;
#define QUAD_NAME(name) name##q
#else
using Quad = long double;  // is quadruple on aarch64
#define QUAD_NAME(name) name##l
#endif

namespace reference {
#define REFERENCE_1(name)                               \
  double name(float x) { return std::name(double{x}); } \
  Quad name(double x) { return QUAD_NAME(name)(Quad{x}); }
#define REFERENCE_2(name)                                                   \
  double name(float x, float y) { return std::name(double{x}, double{y}); } \
  Quad name(double x, double y) { return QUAD_NAME(name)(Quad{x}, Quad{y}); }
// Exact functions.
#define REFERENCE_SAME(name)                                \
  double name(float x, float y) { return std::name(x, y); } \
  Quad name(double x, double y) { return std::name(x, y); }
// clang-format off
REFERENCE_1(exp) REFERENCE_1(exp2) REFERENCE_1(expm1) REFERENCE_1(log) REFERENCE_1(log2) REFERENCE_1(log10)
REFERENCE_1(log1p) REFERENCE_1(sin) REFERENCE_1(cos) REFERENCE_1(tan) REFERENCE_1(asin) REFERENCE_1(acos)
REFERENCE_1(atan) REFERENCE_1(sinh) REFERENCE_1(cosh) REFERENCE_1(tanh) REFERENCE_1(asinh) REFERENCE_1(acosh)
REFERENCE_1(atanh) REFERENCE_1(erf) REFERENCE_1(erfc) REFERENCE_1(lgamma)
REFERENCE_2(pow) REFERENCE_2(atan2) REFERENCE_2(hypot)
REFERENCE_SAME(fmod) REFERENCE_SAME(nextafter) REFERENCE_SAME(copysign)
// clang-format on
}  // namespace reference

// |got - want| in units of the last place of T around `want`; infinite where one of them is NaN or the sign of a zero
// is wrong.
template <typename T, typename Wide>
double ulps(T got, Wide want) {
  using Limits = std::numeric_limits<T>;
  const double wrong = std::numeric_limits<double>::infinity();
  const T rounded = static_cast<T>(want);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0 : wrong;
  if (std::isinf(rounded) && std::isinf(got)) return got == rounded ? 0 : wrong;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(rounded) ? 0 : wrong;
  int exponent = Limits::max_exponent;
  if (!std::isinf(rounded)) std::frexp(rounded, &exponent);
  const Wide unit = std::ldexp(T(1), std::max(exponent, Limits::min_exponent) - Limits::digits);
  // An overflow counts as the first value that does not fit.
  const Wide end = Wide(2) * std::ldexp(T(1), Limits::max_exponent - 1);
  const Wide value = !std::isinf(got) ? Wide(got) : got > 0 ? end : -end;
  const double error = static_cast<double>((value - want) / unit);
  return std::fabs(error);
}

uint64_t random_bits() {
  static uint64_t state = 0x9e3779b97f4a7c15;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

template <typename T>
std::vector<T> specials() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> result;
  for (T x : {T(0),
              T(1),
              T(0.5),
              T(2),
              T(3),
              T(10),
              T(88.7),
              T(89),
              T(103.9),
              T(126.5),
              T(127.99),
              T(149.5),
              T(709.7),
              T(745),
              T(1e-30),
              T(1e10),
              T(16777217),
              T(8388607.5),
              T(3.14159265358979323846),
              T(1.57079632679489661923),
              T(1048576),
              T(1048577),
              T(1e22),
              Limits::min(),
              Limits::denorm_min(),
              Limits::max(),
              Limits::infinity(),
              Limits::epsilon(),
              1 - Limits::epsilon(),
              1 + Limits::epsilon(),
              Limits::quiet_NaN()}) {
    result.push_back(x);
    result.push_back(-x);
  }
  return result;
}

// Half of them any bit pattern, half of moderate size.
template <typename T>
T random_value() {
  const uint64_t bits = random_bits();
  if (bits & 1) {
    const double size = std::exp(static_cast<double>(random_bits() >> 11) * 0x1p-53 * 20 - 14);
    return static_cast<T>(bits & 2 ? size : -size);
  }
  T value;
  const uint64_t pattern = random_bits();
  std::memcpy(&value, &pattern, sizeof(value));
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;  // C leaves pow(signalling NaN, 0) open
}

int random_count = 30000;
bool timed = true;

template <typename T>
std::vector<T> samples(uint64_t step) {
  std::vector<T> result = specials<T>();
  if constexpr (sizeof(T) == 4) {
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
      const uint32_t pattern = static_cast<uint32_t>(bits);
      T value;
      std::memcpy(&value, &pattern, sizeof(value));
      result.push_back(value);
    }
  } else {
    for (int i = 0; i < random_count; ++i) result.push_back(random_value<T>());
  }
  return result;
}

bool first_line = true;

void report(const char* name, double worst, double at, double second, double vector_ns, double libm_ns) {
  std::printf("%s\n\"%s\": {\"ulp\": %.17g, \"at\": \"%a\", \"second\": \"%a\", \"nanoseconds\": %.4g, \"libm\": %.4g}",
              first_line ? "{" : ",", name, std::min(worst, 1e300), at, second, vector_ns, libm_ns);
  first_line = false;
}

template <typename F>
double nanoseconds(int elements, F f) {
  if (!timed) return 0;
  double best = 1e300;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best * 1e9 / 20 / elements;
}

template <typename T, typename V, typename F, typename R, typename S>
void measure(const char* name, const std::vector<T>& inputs, F f, R reference, S scalar) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  double worst = 0;
  T at = 0;
  for (size_t i = 0; i < inputs.size(); i += kLanes) {
    T in[kLanes] = {}, out[kLanes];
    const int n = static_cast<int>(std::min<size_t>(kLanes, inputs.size() - i));
    std::memcpy(in, &inputs[i], n * sizeof(T));
    V v;
    std::memcpy(&v, in, sizeof(v));
    v = f(v);
    std::memcpy(out, &v, sizeof(v));
    for (int j = 0; j < n; ++j) {
      const double error = ulps(out[j], reference(in[j]));
      if (error > worst) worst = error, at = in[j];
    }
  }
  std::vector<T> from(1024), to(1024);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(0.001) * static_cast<T>(i + 1);
  const double fast = nanoseconds(1024, [&] {
    for (size_t i = 0; i < from.size(); i += kLanes) {
      V v;
      std::memcpy(&v, &from[i], sizeof(v));
      v = f(v);
      std::memcpy(&to[i], &v, sizeof(v));
    }
    asm volatile("" ::"r"(to.data()) : "memory");
  });
  const double slow = nanoseconds(1024, [&] {
    for (size_t i = 0; i < from.size(); ++i) {
      to[i] = scalar(from[i]);
      asm volatile("" ::: "memory");
    }
  });
  report(name, worst, static_cast<double>(at), 0, fast, slow);
}

template <typename T, typename V, typename F, typename R>
void measure_pair(const char* name, F f, R reference) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  std::vector<T> first, second;
  for (T a : specials<T>()) {
    for (T b : specials<T>()) first.push_back(a), second.push_back(b);
  }
  for (int i = 0; i < 2 * random_count; ++i) {
    first.push_back(random_value<T>());
    T b = random_value<T>();
    if (i % 5 == 0) b = std::rint(b);
    second.push_back(b);
  }
  double worst = 0;
  T at = 0, with = 0;
  for (size_t i = 0; i + kLanes <= first.size(); i += kLanes) {
    T out[kLanes];
    V x, y;
    std::memcpy(&x, &first[i], sizeof(x));
    std::memcpy(&y, &second[i], sizeof(y));
    x = f(x, y);
    std::memcpy(out, &x, sizeof(x));
    for (int j = 0; j < kLanes; ++j) {
      const double error = ulps(out[j], reference(first[i + j], second[i + j]));
      if (error > worst) worst = error, at = first[i + j], with = second[i + j];
    }
  }
  report(name, worst, static_cast<double>(at), static_cast<double>(with), 0, 0);
}

}  // namespace

#define ONE(name, bound)                                                                 \
  measure<float, VectorF>(                                                               \
      #name "f" #bound, floats, [](VectorF x) { return F32_NAME(name, bound)(x); },      \
      [](float x) { return reference::name(x); }, [](float x) { return std::name(x); }); \
  measure<double, VectorD>(                                                              \
      #name "d" #bound, doubles, [](VectorD x) { return F64_NAME(name, bound)(x); },     \
      [](double x) { return reference::name(x); }, [](double x) { return std::name(x); });
#define TWO(name, bound)                                                                  \
  measure_pair<float, VectorF>(                                                           \
      #name "f" #bound, [](VectorF x, VectorF y) { return F32_NAME(name, bound)(x, y); }, \
      [](float x, float y) { return reference::name(x, y); });                            \
  measure_pair<double, VectorD>(                                                          \
      #name "d" #bound, [](VectorD x, VectorD y) { return F64_NAME(name, bound)(x, y); }, \
      [](double x, double y) { return reference::name(x, y); });

int main(int count, char** arguments) {
  if (count > 2) {
    random_count = std::atoi(arguments[2]);
    timed = false;
  }
  const std::vector<float> floats = samples<float>(std::strtoull(arguments[1], nullptr, 10));
  const std::vector<double> doubles = samples<double>(0);
  // clang-format off
  ONE(exp, _u10) ONE(exp2, _u10) ONE(expm1, _u10) ONE(log, _u10) ONE(log2, _u10) ONE(log10, _u10) ONE(log1p, _u10)
  ONE(sin, _u10) ONE(cos, _u10) ONE(tan, _u10) ONE(sin, _u35) ONE(cos, _u35) ONE(tan, _u35)
  ONE(asin, _u10) ONE(acos, _u10) ONE(atan, _u10) ONE(sinh, _u10) ONE(cosh, _u10) ONE(tanh, _u10)
  ONE(asinh, _u10) ONE(acosh, _u10) ONE(atanh, _u10) ONE(erf, _u10) ONE(erfc, _u15) ONE(lgamma, _u10)
  TWO(pow, _u10) TWO(atan2, _u10) TWO(hypot, _u05) TWO(fmod, ) TWO(nextafter, ) TWO(copysign, )
      // clang-format on
      std::printf("\n}\n");
}
