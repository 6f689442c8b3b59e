#include "layer_norm.h"

#include <cmath>

#include "element_types.h"
#include "parallel.h"
#include "simd.h"

namespace aotpack::kernels {
namespace {

// Elements of a nanosecond, about, of one thread: rows are read three times, twice of them from the nearest cache.
constexpr double kPerNanosecond = 3.0;

// Calls body(i, lane) for whole vectors of k elements, which begin at i, four at a time with lanes of their own; then
// tail(i, count) for what is left.
template <class Body, class Tail>
AOTPACK_INLINE void each_vector(int64_t k, const Body& body, const Tail& tail) {
  int64_t i = 0;
  for (; i + 4 * kWidth <= k; i += 4 * kWidth) {
    AOTPACK_UNROLL
    for (int lane = 0; lane < 4; ++lane) body(i + lane * kWidth, lane);
  }
  for (; i + kWidth <= k; i += kWidth) body(i, 0);
  if (i < k) tail(i, static_cast<int>(k - i));
}

// The first n lanes of x, others 0.
AOTPACK_INLINE vf first_lanes(vf x, int n) {
  float all[kWidth];
  store(all, x);
  return load_partial(all, n);
}

template <class T>
float sum_of_row(const T* x, int64_t k) {
  vf sums[4] = {};
  each_vector(
      k, [&](int64_t i, int lane) { sums[lane] += load(x + i); },
      [&](int64_t i, int n) { sums[0] += load_partial(x + i, n); });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

struct Moments {
  float mean, rest, deviation;  // the mean is mean + rest: a float alone is too coarse where it is large
};

template <class T>
Moments moments_of_row(const T* x, int64_t k, float eps) {
  const float mean = sum_of_row(x, k) / static_cast<float>(k);
  vf sums[4] = {}, squares[4] = {};
  each_vector(
      k,
      [&](int64_t i, int lane) {
        const vf d = load(x + i) - mean;
        sums[lane] += d;
        squares[lane] += d * d;
      },
      [&](int64_t i, int n) {
        const vf d = first_lanes(load_partial(x + i, n) - mean, n);
        sums[0] += d;
        squares[0] += d * d;
      });
  const float rest = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<float>(k);
  const float square = sum_of((squares[0] + squares[1]) + (squares[2] + squares[3])) / static_cast<float>(k);
  return {mean, rest, std::sqrt(square - rest * rest + eps)};
}

template <class T, bool kWeight, bool kBias>
void normalize_row(const LayerNormArgs& g, const T* x, T* y) {
  const Moments m = moments_of_row(x, g.k, g.eps);
  const float scale = 1.0f / m.deviation, shift = -m.rest * scale;
  const T *const weight = static_cast<const T*>(g.weight), *const bias = static_cast<const T*>(g.bias);
  const auto normalized = [&](vf value) { return (value - m.mean) * scale + shift; };
  each_vector(
      g.k,
      [&](int64_t i, int) {
        vf value = normalized(load(x + i));
        if constexpr (kWeight) value *= load(weight + i);
        if constexpr (kBias) value += load(bias + i);
        store(y + i, value);
      },
      [&](int64_t i, int n) {
        vf value = normalized(load_partial(x + i, n));
        if constexpr (kWeight) value *= load_partial(weight + i, n);
        if constexpr (kBias) value += load_partial(bias + i, n);
        store_partial(y + i, value, n);
      });
}

template <class T, bool kWeight, bool kBias>
void normalize(const LayerNormArgs& g) {
  const double nanoseconds = static_cast<double>(g.rows) * static_cast<double>(g.k) / kPerNanosecond;
  parallel(worth_threads(nanoseconds / 1e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.rows, thread, threads);
    for (int64_t row = mine.begin; row < mine.end; ++row) {
      normalize_row<T, kWeight, kBias>(g, static_cast<const T*>(g.x) + row * g.x_stride,
                                       static_cast<T*>(g.y) + row * g.k);
    }
  });
}

}  // namespace

void layer_norm(const LayerNormArgs& g) {
  with_type(g.dtype, [&]<class T>() {
    if (g.weight != nullptr) return g.bias != nullptr ? normalize<T, true, true>(g) : normalize<T, true, false>(g);
    return g.bias != nullptr ? normalize<T, false, true>(g) : normalize<T, false, false>(g);
  });
}

}  // namespace aotpack::kernels
