// Bytes of four taps are interleaved in registers, for as many channels at once as a vector has bytes, so that each
// lane holds the four taps of a channel. Windows are read where they lie: each tap has a pointer, which leads to a
// pixel of x_zero outside of the input.
#include "conv_int8_depthwise.h"

#include "conv_int8_depthwise_taps.h"
#include "int8_lanes.h"
#include "parallel.h"

namespace aotpack::kernels {
namespace {

using namespace depthwise_int8;

#if defined(__AVX512BW__)
constexpr int kWidest = 64;
#elif defined(__AVX2__)
constexpr int kWidest = 32;
#else
constexpr int kWidest = 16;
#endif

bool by_strips(const Int8ConvArgs& a, bool fused) {
  return fused && a.kernel[2] == 3 && a.stride[2] == 1 && a.dilation[2] == 1 && a.weight_zero == nullptr &&
         a.out[2] > 1;
}

// Channels of a block: all of a vector, or the first `count` of one of 16 bytes.
template <int size>
struct Channels {
  using Bytes = typename ByteLanes<size>::bytes;
  int64_t first, count;

  Bytes load(const uint8_t* from) const {
    if constexpr (size == 16) {
#if defined(__AVX512BW__)
      return reinterpret_cast<Bytes>(_mm_maskz_loadu_epi8(mask(), from + first));
#else
      if (count < 16) return load_some(from + first, static_cast<int>(count));
#endif
    }
    return load_as<Bytes>(from + first);
  }
  void store(uint8_t* to, Bytes x) const {
    if constexpr (size == 16) {
#if defined(__AVX512BW__)
      return _mm_mask_storeu_epi8(to, mask(), reinterpret_cast<__m128i>(x));
#else
      if (count < 16) return static_cast<void>(std::memcpy(to, &x, static_cast<size_t>(count)));
#endif
    }
    std::memcpy(to, &x, sizeof x);
  }
  // Where the first of the four vectors of lanes is among the packed columns; the others are 16 lanes apart.
  int64_t column() const { return int8_depthwise_column(first); }

 private:
#if defined(__AVX512BW__)
  __mmask16 mask() const { return static_cast<__mmask16>((1u << count) - 1u); }
#else
  // Reads nothing beyond them.
  static Bytes load_some(const uint8_t* from, int count) {
    uint64_t half[2] = {0, 0};
    if (count >= 8) {
      std::memcpy(&half[0], from, 8);
      if (count > 8) {
        std::memcpy(&half[1], from + count - 8, 8);
        half[1] >>= 8 * (16 - count);
      }
    } else {
      for (int i = 0; i < count; ++i) half[0] |= static_cast<uint64_t>(from[i]) << (8 * i);
    }
    return load_as<Bytes>(half);
  }
#endif
};

template <int size>
AOTPACK_INLINE typename ByteLanes<size>::floats clamped(typename ByteLanes<size>::floats x, float low, float high) {
  using Floats = typename ByteLanes<size>::floats;
  const Floats least = low - Floats{}, most = high - Floats{};
  x = x < least ? least : x;
  return x > most ? most : x;
}

// With a residual, or floats as the result.
template <int size>
void finish_other(const Work& k, const Channels<size>& c, typename ByteLanes<size>::floats (&v)[4], int64_t at) {
  using Lanes = ByteLanes<size>;
  const Int8ConvArgs& a = k.a;
  for (auto& x : v) x = clamped<size>(x, a.low, a.high);
  if (a.residual != nullptr) {
    typename Lanes::words other[4];
    const Channels<size> here{0, c.count};
    lanes_of<size>(here.load(static_cast<const uint8_t*>(a.residual) + at), other);
    for (int i = 0; i < 4; ++i) {
      if (a.round_first) {
        const float shifter = 12582912.0f;  // for |x| < 2^22: pushes the fraction out of the mantissa
        v[i] = __builtin_convertvector(reinterpret_cast<typename Lanes::words>(v[i] + shifter) - 0x4b400000,
                                       typename Lanes::floats);
      }
      if (a.residual_signed) other[i] = (other[i] ^ 0x80) - 0x80;
      v[i] = v[i] * a.keep + (__builtin_convertvector(other[i], typename Lanes::floats) - a.residual_zero) * a.gain;
      v[i] = clamped<size>(v[i], a.low_after, a.high_after);
    }
  }
  if (a.result != Int8Result::f32) {
    c.store(static_cast<uint8_t*>(a.y) + at, bytes_from<size>(v, k.range) ^ k.sign);
    return;
  }
  float natural[size];
  for (int i = 0; i < size; i += 4) {
    std::memcpy(natural + i, reinterpret_cast<const char*>(&v[i % 16 / 4]) + i / 16 * 16, 16);
  }
  std::memcpy(static_cast<float*>(a.y) + at, natural, sizeof(float) * static_cast<size_t>(c.count));
}

// Windows side by side, of which the first `pixels` count.
template <int most, int size>
AOTPACK_INLINE void finish(const Work& k, const Channels<size>& c,
                           const typename ByteLanes<size>::words (&sums)[most][4], int64_t pixel, int64_t pixels) {
  using Floats = typename ByteLanes<size>::floats;
  const Int8ConvArgs& a = k.a;
  // Copies: what is written to y might else change them.
  const int64_t column = c.column(), at = pixel * a.c + c.first, next = a.c;
  const ByteRange range = k.range;
  const uint8_t sign = k.sign;
  uint8_t* const y = static_cast<uint8_t*>(a.y) + at;
  const bool bytes_alone = k.bytes_alone;
  Floats v[most][4];
  AOTPACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const auto factor = load_as<Floats>(a.factor + column + 16 * i),
               offset = load_as<Floats>(a.offset + column + 16 * i);
    AOTPACK_UNROLL
    for (int p = 0; p < most; ++p) v[p][i] = __builtin_convertvector(sums[p][i], Floats) * factor + offset;
  }
  AOTPACK_UNROLL
  for (int p = 0; p < most; ++p) {
    if (p >= pixels) return;
    if (bytes_alone) {
      c.store(y + p * next, bytes_from<size>(v[p], range) ^ sign);
    } else {
      finish_other<size>(k, c, v[p], at + p * next);
    }
  }
}

// One window.
template <bool fused, bool zeros, bool flip, int size>
AOTPACK_INLINE void window(const Work& k, const uint8_t* const* at, const Channels<size>& c, int64_t pixel) {
  using Words = typename ByteLanes<size>::words;
  using Dot = Int8Dot<fused, Words>;
  const uint8_t sign = flip ? k.x_sign : 0;
  const int64_t column = c.column();
  Words sums[1][4], counted[4] = {};
  AOTPACK_UNROLL
  for (int v = 0; v < 4; ++v) sums[0][v] = load_as<Words>(k.a.init + column + 16 * v);
  const int8_t* w = k.a.w_packed + column * 4;
  for (int64_t t = 0; t < k.fours; ++t, at += 4, w += k.columns * 4) {
    const auto low = pairs_of<size>(c.load(at[0]) ^ sign, c.load(at[1]) ^ sign);
    const auto high = pairs_of<size>(c.load(at[2]) ^ sign, c.load(at[3]) ^ sign);
    Words fours[4];
    fours_of<size>(low, high, fours);
    AOTPACK_UNROLL
    for (int v = 0; v < 4; ++v) {
      const auto x = Dot::unsigned_four(fours[v]);
      sums[0][v] = Dot::add(sums[0][v], x, Dot::signed_four(load_as<Words>(w + 64 * v)));
      if constexpr (zeros) {
        const int64_t some = min64(k.per_four, k.taps - t * k.per_four);
        const Words one = static_cast<int32_t>(0x01010101u >> (8 * (4 - some))) - Words{};
        counted[v] = Dot::add(counted[v], x, Dot::signed_four(one));
      }
    }
  }
  if constexpr (zeros) {
    using Unsigned = typename ByteLanes<size>::unsigned_words;
    for (int v = 0; v < 4; ++v) {
      const auto zero = load_as<Unsigned>(k.a.weight_zero + column + 16 * v);
      sums[0][v] = reinterpret_cast<Words>(reinterpret_cast<Unsigned>(sums[0][v]) -
                                           reinterpret_cast<Unsigned>(counted[v]) * zero);
    }
  }
  finish<1, size>(k, c, sums, pixel, 1);
}

// Up to four windows, from four taps for each two of them.
template <bool flip, int size>
AOTPACK_INLINE void strip(const Work& k, const uint8_t* const* at, const Channels<size>& c, int64_t pixel,
                          int64_t pixels) {
  using Words = typename ByteLanes<size>::words;
  using Dot = Int8Dot<true, Words>;
  const uint8_t sign = flip ? k.x_sign : 0;
  const int64_t column = c.column(), further = k.fours * k.columns * 4;
  Words sums[kStripPixels][4];
  AOTPACK_UNROLL
  for (int v = 0; v < 4; ++v) {
    const Words init = load_as<Words>(k.a.init + column + 16 * v);
    AOTPACK_UNROLL
    for (int p = 0; p < kStripPixels; ++p) sums[p][v] = init;
  }
  const int8_t* w = k.a.w_packed + column * 4;
  for (int64_t t = 0; t < k.fours; ++t, at += kStripTaps, w += k.columns * 4) {
    const auto first = pairs_of<size>(c.load(at[0]) ^ sign, c.load(at[1]) ^ sign);
    const auto second = pairs_of<size>(c.load(at[2]) ^ sign, c.load(at[3]) ^ sign);
    const auto third = pairs_of<size>(c.load(at[4]) ^ sign, c.load(at[5]) ^ sign);
    Words left[4], right[4];
    fours_of<size>(first, second, left);
    fours_of<size>(second, third, right);
    AOTPACK_UNROLL
    for (int v = 0; v < 4; ++v) {
      const auto here = Dot::signed_four(load_as<Words>(w + 64 * v)),
                 next = Dot::signed_four(load_as<Words>(w + further + 64 * v));
      const auto x = Dot::unsigned_four(left[v]), later = Dot::unsigned_four(right[v]);
      sums[0][v] = Dot::add(sums[0][v], x, here);
      sums[1][v] = Dot::add(sums[1][v], x, next);
      sums[2][v] = Dot::add(sums[2][v], later, here);
      sums[3][v] = Dot::add(sums[3][v], later, next);
    }
  }
  finish<kStripPixels, size>(k, c, sums, pixel, pixels);
}

template <bool fused, bool zeros, bool flip, int size>
AOTPACK_INLINE void step(const Work& k, const uint8_t* const* at, const Channels<size>& c, int64_t pixel,
                         int64_t pixels) {
  if constexpr (fused && !zeros) {
    if (k.pixels != 1) return strip<flip, size>(k, at, c, pixel, pixels);
  }
  window<fused, zeros, flip, size>(k, at, c, pixel);
}

template <bool fused, bool zeros, bool flip>
void run(const Work& k, const Buffers& b, int thread, int threads) {
  const Int8ConvArgs& a = k.a;
  const int64_t rows = a.n * a.out[0] * a.out[1];
  const Rectangle mine = share_grid(rows, ceil_div(a.c, kDepthwiseBlock), static_cast<double>(a.in[2] * a.c),
                                    static_cast<double>(k.fours * kDepthwiseBlock), thread, threads);
  const int64_t begin = mine.columns.begin * kDepthwiseBlock, end = min64(mine.columns.end * kDepthwiseBlock, a.c);
  if (begin >= end) return;
  Windows windows(k, b, ThreadBuffers(a, b.threads + b.each * static_cast<size_t>(thread)));
  for (int64_t row = mine.rows.begin; row < mine.rows.end; ++row) {
    windows.begin_row(row);
    for (int64_t w = 0; w < a.out[2]; w += k.pixels) {
      const uint8_t* const* at = windows.at(w);
      const int64_t pixel = row * a.out[2] + w, pixels = min64(k.pixels, a.out[2] - w);
      int64_t c = begin;
      for (; c + kWidest <= end; c += kWidest) {
        step<fused, zeros, flip, kWidest>(k, at, {c, kWidest}, pixel, pixels);
      }
#if defined(__AVX512BW__)
      for (; c + 32 <= end; c += 32) step<fused, zeros, flip, 32>(k, at, {c, 32}, pixel, pixels);
#endif
      for (; c < end; c += 16) step<fused, zeros, flip, 16>(k, at, {c, min64(16, end - c)}, pixel, pixels);
    }
  }
}

template <bool fused>
void run(const Int8ConvArgs& a) {
  const Int8DepthwiseFours fours = int8_depthwise_fours(a.kernel);
  const bool strips = by_strips(a, fused), is_signed = a.result == Int8Result::s8;
  const int zero = a.y_zero + (is_signed ? 128 : 0);
  const bool residual = a.residual != nullptr;
  const Work k{a,
               round_up(a.c, kDepthwiseBlock),
               fours.count,
               fours.taps,
               a.kernel[0] * a.kernel[1] * a.kernel[2],
               strips ? kStripPixels : 1,
               fours.count * (strips ? kStripTaps : 4),
               strips ? kStripTaps - 1 : (a.kernel[2] - 1) * a.dilation[2],
               {residual ? a.high_after : a.high, zero, least_byte(residual ? a.low_after : a.low, zero)},
               a.result != Int8Result::f32 && !residual,
               static_cast<uint8_t>(is_signed ? 0x80 : 0),
               static_cast<uint8_t>(a.x_signed ? 0x80 : 0)};
  const Buffers b = carve(a, a.scratch, max64(a.num_threads, 1));
  lay_taps(k, b);
  const double outputs = static_cast<double>(a.n * a.out[0] * a.out[1] * a.out[2] * a.c);
  const double nanoseconds = fused ? 0.1 + 0.06 * static_cast<double>(fours.count)  // of an output
                                   : 0.2 + 0.4 * static_cast<double>(fours.count);
  parallel(worth_threads(outputs * nanoseconds * 1e-3, a.num_threads), [&](int thread, int threads) {
    if (a.weight_zero != nullptr) return run<fused, true, true>(k, b, thread, threads);
    a.x_signed ? run<fused, false, true>(k, b, thread, threads) : run<fused, false, false>(k, b, thread, threads);
  });
}

}  // namespace

size_t conv_int8_depthwise_scratch_bytes(const Int8ConvArgs& args) {
  return carve(args, reinterpret_cast<void*>(uintptr_t{64}), max64(args.num_threads, 1)).bytes;
}

void conv_int8_depthwise(const Int8ConvArgs& args) {
#if defined(AOTPACK_INT8_DOT)
  if (!args.plain && has_int8_dot()) return run<true>(args);
#endif
  run<false>(args);
}

}  // namespace aotpack::kernels
