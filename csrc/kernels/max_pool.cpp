#include "max_pool.h"

#include <limits>
#include <type_traits>

#include "int8_lanes.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int kAtOnce = 4;  // vectors of a pixel

// Vectors of channels, and what is less than all of them.
template <class T>
struct Lanes {
  using Vector = vf;
  static constexpr int64_t kCount = kWidth;
  static AOTPACK_INLINE vf least() { return vset(-std::numeric_limits<float>::infinity()); }
  static AOTPACK_INLINE vf turned(vf x, vf) { return x; }
  static AOTPACK_INLINE vf turn(bool) { return vf{}; }
  static AOTPACK_INLINE vf get(const T* from) { return load(from); }
  static AOTPACK_INLINE vf get_some(const T* from, int64_t count) {
    return load_partial(from, static_cast<int>(count));
  }
  static AOTPACK_INLINE void put(T* to, vf x) { store(to, x); }
  static AOTPACK_INLINE void put_some(T* to, vf x, int64_t count) { store_partial(to, x, static_cast<int>(count)); }
  static AOTPACK_INLINE vf greater(vf a, vf x) {
    const vf larger = at_least(a, x);  // a where one of them is NaN
    return x == x ? larger : x;
  }
};

template <class T>
  requires(sizeof(T) == 1)
struct Lanes<T> {
  static constexpr int64_t kCount = 4 * kWidth;
  typedef T Vector __attribute__((vector_size(kCount)));
  static AOTPACK_INLINE Vector least() { return Vector{} + std::numeric_limits<T>::min(); }
  // The least is the greatest of what is turned around.
  static AOTPACK_INLINE Vector turned(Vector x, Vector turn) { return x ^ turn; }
  static AOTPACK_INLINE Vector turn(bool least) { return Vector{} - static_cast<T>(least); }
  static AOTPACK_INLINE Vector get(const T* from) { return load_as<Vector>(from); }
  static AOTPACK_INLINE Vector get_some(const T* from, int64_t count) {
    Vector x{};
    std::memcpy(&x, from, static_cast<size_t>(count));
    return x;
  }
  static AOTPACK_INLINE void put(T* to, Vector x) { std::memcpy(to, &x, sizeof x); }
  static AOTPACK_INLINE void put_some(T* to, Vector x, int64_t count) {
    std::memcpy(to, &x, static_cast<size_t>(count));
  }
  static AOTPACK_INLINE Vector greater(Vector a, Vector x) { return a > x ? a : x; }
};

// The taps of a window that are inside, along one dim.
struct Taps {
  int64_t begin, count;  // where the first one is in x
};
Taps taps_of(const MaxPoolArgs& g, int d, int64_t output) {
  const int64_t begin = output * g.stride[d] - g.padding[d], step = g.dilation[d];
  if (begin >= 0 && begin + (g.kernel[d] - 1) * step < g.in[d]) return {begin, g.kernel[d]};
  const int64_t first = begin < 0 ? ceil_div(-begin, step) : 0;
  const int64_t end = min64(g.kernel[d], begin < g.in[d] ? ceil_div(g.in[d] - begin, step) : 0);
  return {begin + first * step, max64(end - first, 0)};
}

// Some vectors of the channels of a pixel, which begin at `channels`; or, where there are not so many, `count`
// channels.
template <class T, int vectors, bool few>
AOTPACK_INLINE void pixel(const MaxPoolArgs& g, const T* x, Taps h, Taps w, T* y, const int64_t* channels) {
  using L = Lanes<T>;
  const int64_t right = g.dilation[1] * g.x_step, down = g.dilation[0] * g.in[1] * g.x_step;
  const typename L::Vector turn = L::turn(g.least);
  typename L::Vector greatest[vectors];
  AOTPACK_UNROLL
  for (int v = 0; v < vectors; ++v) greatest[v] = L::least();
  const T* line = x + (h.begin * g.in[1] + w.begin) * g.x_step;
  for (int64_t i = 0; i < h.count; ++i, line += down) {
    const T* from = line;
    for (int64_t j = 0; j < w.count; ++j, from += right) {
      AOTPACK_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const auto each = few ? L::get_some(from, g.c) : L::get(from + channels[v]);
        greatest[v] = L::greater(greatest[v], L::turned(each, turn));
      }
    }
  }
  AOTPACK_UNROLL
  for (int v = 0; v < vectors; ++v) {
    greatest[v] = L::turned(greatest[v], turn);
    few ? L::put_some(y, greatest[v], g.c) : L::put(y + channels[v], greatest[v]);
  }
}

// All channels of a pixel.
template <class T>
AOTPACK_INLINE void pixel(const MaxPoolArgs& g, const T* x, Taps h, Taps w, T* y) {
  constexpr int64_t kCount = Lanes<T>::kCount;
  if (g.c < kCount) return pixel<T, 1, true>(g, x, h, w, y, nullptr);
  for (int64_t first = 0; first < g.c; first += kAtOnce * kCount) {
    // The last vector has some channels once more.
    int64_t channels[kAtOnce];
    AOTPACK_UNROLL
    for (int v = 0; v < kAtOnce; ++v) channels[v] = min64(first + v * kCount, g.c - kCount);
    switch (min64(ceil_div(g.c - first, kCount), kAtOnce)) {
      case 1:
        pixel<T, 1, false>(g, x, h, w, y, channels);
        break;
      case 2:
        pixel<T, 2, false>(g, x, h, w, y, channels);
        break;
      case 3:
        pixel<T, 3, false>(g, x, h, w, y, channels);
        break;
      default:
        pixel<T, kAtOnce, false>(g, x, h, w, y, channels);
    }
  }
}

// Lines of the output, of all images.
template <class T>
void lines(const MaxPoolArgs& g, Range mine) {
  for (int64_t line = mine.begin; line < mine.end; ++line) {
    const Taps h = taps_of(g, 0, line % g.out[0]);
    const T* const image = static_cast<const T*>(g.x) + line / g.out[0] * g.in[0] * g.in[1] * g.x_step;
    T* y = static_cast<T*>(g.y) + line * g.out[1] * g.c;
    for (int64_t column = 0; column < g.out[1]; ++column, y += g.c) pixel(g, image, h, taps_of(g, 1, column), y);
  }
}

}  // namespace

void max_pool(const MaxPoolArgs& g) {
  const double each = g.type == PoolType::u8 || g.type == PoolType::s8 ? 40.0 : 8.0;  // elements in a nanosecond
  const double elements = static_cast<double>(g.n * g.out[0] * g.out[1] * g.c);
  const double nanoseconds = elements * static_cast<double>(g.kernel[0] * g.kernel[1]) / each;
  parallel(worth_threads(nanoseconds / 1e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.n * g.out[0], thread, threads);
    switch (g.type) {
      case PoolType::f32:
        return lines<float>(g, mine);
      case PoolType::bf16:
        return lines<bf16>(g, mine);
      case PoolType::f16:
        return lines<f16>(g, mine);
      case PoolType::u8:
        return lines<uint8_t>(g, mine);
      case PoolType::s8:
        return lines<int8_t>(g, mine);
    }
  });
}

}  // namespace aotpack::kernels
