#include <limits>
#include <type_traits>

#include "max_pool.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

struct Shape {
  int64_t n, c, in[2], kernel[2], stride[2], padding[2], dilation[2];
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
T of_float(float value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    T of;
    from_float(value, &of);
    return of;
  }
}
template <class T>
float number(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<float>(value);
  } else {
    return to_float(value);
  }
}

template <class T>
T random_value() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(pick_in(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else {
    const float odd[] = {std::numeric_limits<float>::quiet_NaN(), -kInfinity, kInfinity};
    const int64_t which = pick_in(0, 30);
    return of_float<T>(which < 3 ? odd[which] : uniform(-4, 4));
  }
}

template <class T>
void check(PoolType type, const Shape& s, int threads) {
  MaxPoolArgs a{};
  a.type = type, a.n = s.n, a.c = s.c;
  for (int d = 0; d < 2; ++d) {
    a.in[d] = s.in[d], a.kernel[d] = s.kernel[d], a.stride[d] = s.stride[d];
    a.padding[d] = s.padding[d], a.dilation[d] = s.dilation[d];
    a.out[d] = (s.in[d] + 2 * s.padding[d] - s.dilation[d] * (s.kernel[d] - 1) - 1) / s.stride[d] + 1;
  }
  a.x_step = s.c + pick({0, 3});
  a.least = std::is_integral_v<T> && coin();
  const int64_t pixels = s.n * s.in[0] * s.in[1];
  // Exactly as long as what may be read.
  std::vector<T> x(static_cast<size_t>(pixels == 0 ? 0 : (pixels - 1) * a.x_step + s.c));
  for (T& value : x) value = random_value<T>();
  std::vector<T> y(static_cast<size_t>(s.n * a.out[0] * a.out[1] * s.c), of_float<T>(77));
  a.x = x.data(), a.y = y.data(), a.num_threads = threads;
  max_pool(a);
  int64_t wrong = 0;
  for (size_t at = 0; at < y.size(); ++at) {
    const int64_t flat = static_cast<int64_t>(at), channel = flat % s.c, column = flat / s.c % a.out[1];
    const int64_t line = flat / s.c / a.out[1] % a.out[0], image = flat / s.c / a.out[1] / a.out[0];
    float greatest = -kInfinity;
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      greatest = static_cast<float>(a.least ? Limits::max() : Limits::min());
    }
    for (int64_t i = 0; i < s.kernel[0]; ++i) {
      for (int64_t j = 0; j < s.kernel[1]; ++j) {
        const int64_t h = line * s.stride[0] - s.padding[0] + i * s.dilation[0];
        const int64_t w = column * s.stride[1] - s.padding[1] + j * s.dilation[1];
        if (h < 0 || h >= s.in[0] || w < 0 || w >= s.in[1]) continue;
        const float value = number(x[static_cast<size_t>(((image * s.in[0] + h) * s.in[1] + w) * a.x_step + channel)]);
        if (a.least ? value < greatest : !(value <= greatest) && !std::isnan(greatest)) greatest = value;
      }
    }
    const float actual = number(y[at]);
    wrong += !(actual == greatest || (std::isnan(actual) && std::isnan(greatest)));
  }
  CAPTURE(s.c);
  CAPTURE(static_cast<int>(type));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("max pooling: windows at all edges, tails of channels, what is no number") {
  const Shape shapes[] = {
      {2, 64, {13, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, {1, 7, {9, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {3, 70, {6, 5}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},   {1, 130, {11, 17}, {3, 2}, {1, 3}, {1, 0}, {3, 2}},
      {1, 3, {1, 40}, {1, 4}, {1, 2}, {0, 2}, {1, 1}},   {1, 33, {4, 4}, {4, 4}, {4, 4}, {0, 0}, {1, 1}},
      {1, 257, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {2, 2}},  {0, 16, {4, 4}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {1, 0, {4, 4}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},    {1, 96, {60, 61}, {3, 3}, {2, 2}, {0, 0}, {1, 1}},
      {1, 5, {1, 1}, {2, 2}, {1, 1}, {1, 1}, {2, 2}},
  };
  for (const Shape& shape : shapes) {
    for (const int threads : {1, 3}) {
      check<float>(PoolType::f32, shape, threads);
      check<bf16>(PoolType::bf16, shape, threads);
      check<f16>(PoolType::f16, shape, threads);
      check<uint8_t>(PoolType::u8, shape, threads);
      check<int8_t>(PoolType::s8, shape, threads);
    }
  }
}

}  // namespace aotpack::kernels::test
