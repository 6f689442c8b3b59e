#include "max_pool.h"

#include <limits>

#include "int8_lanes.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

constexpr int kAtOnce = 4;  // vectors of a pixel
constexpr int64_t kVectorBytes = 4 * kWidth, kSmallBytes = 16;

// What is compared, by kind of element: `order` turns vectors of elements into some whose greatest is asked for.

struct FloatOrder {
  using Element = float;
  using Vector = vf;
  static constexpr int64_t kCount = kWidth;
  explicit FloatOrder(const MaxPoolArgs&) {}
  static AOTPACK_INLINE vf least() { return vset(-std::numeric_limits<float>::infinity()); }
  static AOTPACK_INLINE vf get(const float* from) { return load(from); }
  static AOTPACK_INLINE vf get_some(const float* from, int64_t n) { return load_partial(from, static_cast<int>(n)); }
  static AOTPACK_INLINE void put(float* to, vf x) { store(to, x); }
  static AOTPACK_INLINE void put_some(float* to, vf x, int64_t n) { store_partial(to, x, static_cast<int>(n)); }
  AOTPACK_INLINE vf order(vf x) const { return x; }
  AOTPACK_INLINE vf element(vf x) const { return x; }
  static AOTPACK_INLINE vf greater(vf a, vf x) {
    const vf larger = at_least(a, x);  // a where one of them is NaN
    return x == x ? larger : x;
  }
};

// Vectors of integers.
template <class T, int64_t bytes>
struct Integers {
  using Element = T;
  static constexpr int64_t kCount = bytes / static_cast<int64_t>(sizeof(T));
  typedef T Vector __attribute__((vector_size(bytes)));
  static AOTPACK_INLINE Vector least() { return Vector{} + std::numeric_limits<T>::min(); }
  static AOTPACK_INLINE Vector get(const T* from) { return load_as<Vector>(from); }
  static AOTPACK_INLINE Vector get_some(const T* from, int64_t n) {
    Vector x{};
    std::memcpy(&x, from, static_cast<size_t>(n) * sizeof(T));
    return x;
  }
  static AOTPACK_INLINE void put(T* to, Vector x) { std::memcpy(to, &x, sizeof x); }
  static AOTPACK_INLINE void put_some(T* to, Vector x, int64_t n) {
    std::memcpy(to, &x, static_cast<size_t>(n) * sizeof(T));
  }
  static AOTPACK_INLINE Vector greater(Vector a, Vector x) { return a > x ? a : x; }
};

// The least of them is the greatest of what is turned around.
template <class T, int64_t bytes>
struct ByteOrder : Integers<T, bytes> {
  using Vector = typename Integers<T, bytes>::Vector;
  explicit ByteOrder(const MaxPoolArgs& g) : turn_(Vector{} - static_cast<T>(g.least)) {}
  AOTPACK_INLINE Vector order(Vector x) const { return x ^ turn_; }
  AOTPACK_INLINE Vector element(Vector x) const { return x ^ turn_; }

 private:
  Vector turn_;
};

// Bits of floats: sign and magnitude, which become two's complement. All of them less what numbers below -inf are, so
// that the NaNs there come out above all others.
template <int infinity, int64_t bytes>
struct HalfOrder : Integers<int16_t, bytes> {
  using Vector = typename Integers<int16_t, bytes>::Vector;
  explicit HalfOrder(const MaxPoolArgs&) {}
  static constexpr int16_t kBelow = 0x7fff - infinity;
  AOTPACK_INLINE Vector order(Vector x) const { return turned(x) - kBelow; }
  AOTPACK_INLINE Vector element(Vector x) const { return turned(x + kBelow); }

 private:
  static AOTPACK_INLINE Vector turned(Vector x) { return x ^ ((x >> 15) & 0x7fff); }
};
template <int64_t bytes>
using Bf16Order = HalfOrder<0x7f80, bytes>;
template <int64_t bytes>
using F16Order = HalfOrder<0x7c00, bytes>;

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

// Some vectors of the channels of a pixel, which begin at `channels`; or, where there are not so many, all of them.
template <class Order, int vectors, bool few>
AOTPACK_INLINE void some(const MaxPoolArgs& g, const Order& o, const typename Order::Element* x, Taps h, Taps w,
                         typename Order::Element* y, const int64_t* channels) {
  const int64_t right = g.dilation[1] * g.x_step, down = g.dilation[0] * g.in[1] * g.x_step;
  typename Order::Vector greatest[vectors];
  AOTPACK_UNROLL
  for (int v = 0; v < vectors; ++v) greatest[v] = Order::least();
  const auto* line = x + (h.begin * g.in[1] + w.begin) * g.x_step;
  for (int64_t i = 0; i < h.count; ++i, line += down) {
    const auto* from = line;
    for (int64_t j = 0; j < w.count; ++j, from += right) {
      AOTPACK_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const auto each = few ? Order::get_some(from, g.c) : Order::get(from + channels[v]);
        greatest[v] = Order::greater(greatest[v], o.order(each));
      }
    }
  }
  AOTPACK_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const auto each = o.element(greatest[v]);
    few ? Order::put_some(y, each, g.c) : Order::put(y + channels[v], each);
  }
}

// All channels of a pixel.
template <class Order>
AOTPACK_INLINE void pixel(const MaxPoolArgs& g, const Order& o, const typename Order::Element* x, Taps h, Taps w,
                          typename Order::Element* y) {
  constexpr int64_t kCount = Order::kCount;
  if (g.c < kCount) return some<Order, 1, true>(g, o, x, h, w, y, nullptr);
  for (int64_t first = 0; first < g.c; first += kAtOnce * kCount) {
    // The last vector has some channels once more.
    int64_t channels[kAtOnce];
    AOTPACK_UNROLL
    for (int v = 0; v < kAtOnce; ++v) channels[v] = min64(first + v * kCount, g.c - kCount);
    switch (min64(ceil_div(g.c - first, kCount), kAtOnce)) {
      case 1:
        some<Order, 1, false>(g, o, x, h, w, y, channels);
        break;
      case 2:
        some<Order, 2, false>(g, o, x, h, w, y, channels);
        break;
      case 3:
        some<Order, 3, false>(g, o, x, h, w, y, channels);
        break;
      default:
        some<Order, kAtOnce, false>(g, o, x, h, w, y, channels);
    }
  }
}

// Lines of the output, of all images.
template <class Order>
void lines(const MaxPoolArgs& g, Range mine) {
  using Element = typename Order::Element;
  const Order order(g);
  for (int64_t line = mine.begin; line < mine.end; ++line) {
    const Taps h = taps_of(g, 0, line % g.out[0]);
    const Element* const image = static_cast<const Element*>(g.x) + line / g.out[0] * g.in[0] * g.in[1] * g.x_step;
    Element* y = static_cast<Element*>(g.y) + line * g.out[1] * g.c;
    for (int64_t column = 0; column < g.out[1]; ++column, y += g.c) {
      pixel(g, order, image, h, taps_of(g, 1, column), y);
    }
  }
}

// By vectors as wide as the target has them, or small ones where there are few channels.
template <template <int64_t> class Order>
void lines(const MaxPoolArgs& g, Range mine) {
  g.c < Order<kVectorBytes>::kCount ? lines<Order<kSmallBytes>>(g, mine) : lines<Order<kVectorBytes>>(g, mine);
}
template <int64_t bytes>
using UnsignedOrder = ByteOrder<uint8_t, bytes>;
template <int64_t bytes>
using SignedOrder = ByteOrder<int8_t, bytes>;

// Elements in a nanosecond, about.
double speed_of(PoolType type) { return type == PoolType::f32 ? 8.0 : type <= PoolType::f16 ? 12.0 : 20.0; }

}  // namespace

void max_pool(const MaxPoolArgs& g) {
  if (g.n * g.out[0] * g.out[1] * g.c <= 0) return;
  const double elements = static_cast<double>(g.n * g.out[0] * g.out[1] * g.c);
  const double nanoseconds = elements * static_cast<double>(g.kernel[0] * g.kernel[1]) / speed_of(g.type);
  parallel(worth_threads(nanoseconds / 1e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.n * g.out[0], thread, threads);
    switch (g.type) {
      case PoolType::f32:
        return lines<FloatOrder>(g, mine);
      case PoolType::bf16:
        return lines<Bf16Order>(g, mine);
      case PoolType::f16:
        return lines<F16Order>(g, mine);
      case PoolType::u8:
        return lines<UnsignedOrder>(g, mine);
      case PoolType::s8:
        return lines<SignedOrder>(g, mine);
    }
  });
}

}  // namespace aotpack::kernels
