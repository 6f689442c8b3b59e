// What the kernels use of AVX-512 (F, BW, VL, BF16) and AMX (BF16, INT8), in plain C++, so that their code for these
// instructions is tested where the processor has none of them. Force-included before every source of the kernels
// (-include), with -march=x86-64-v3; far from fast. By Intel's Software Developer's Manual, volume 2.
#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#define __AVX512DQ__ 1
#define __AVX512BF16__ 1
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#define __AMX_INT8__ 1

#define EMULATED static inline __attribute__((always_inline, unused))

namespace emulated {

template <class T, class V>
using Lanes = std::array<T, sizeof(V) / sizeof(T)>;

template <class To, class From>
EMULATED To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <class T, class V>
EMULATED Lanes<T, V> lanes(const V& x) {
  return as<Lanes<T, V>>(x);
}

// V of the lanes value(i), 0 where `mask` has none.
template <class V, class T, class F>
EMULATED V make(uint64_t mask, const F& value) {
  Lanes<T, V> y{};
  for (size_t i = 0; i < y.size(); ++i) {
    if ((mask >> i & 1) != 0) y[i] = static_cast<T>(value(i));
  }
  return as<V>(y);
}
inline constexpr uint64_t kAll = ~uint64_t{0};

template <class V, class T>
EMULATED V load(uint64_t mask, const void* p) {
  return make<V, T>(mask, [&](size_t i) {
    T x;
    std::memcpy(&x, static_cast<const char*>(p) + i * sizeof(T), sizeof x);
    return x;
  });
}
template <class T, class V>
EMULATED void store(void* p, uint64_t mask, const V& x) {
  const auto all = lanes<T>(x);
  for (size_t i = 0; i < all.size(); ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<char*>(p) + i * sizeof(T), &all[i], sizeof(T));
  }
}

template <class T>
EMULATED __m512i blend(uint64_t mask, const __m512i& a, const __m512i& b) {
  const auto x = lanes<T>(a), y = lanes<T>(b);
  return make<__m512i, T>(kAll, [&](size_t i) { return (mask >> i & 1) != 0 ? y[i] : x[i]; });
}
// Element by element within blocks of 16 bytes: of a, b, a, b, ..., the lower or the upper half of each.
template <class T>
EMULATED __m512i unpack(uint64_t mask, const __m512i& a, const __m512i& b, bool high) {
  constexpr size_t kBlock = 16 / sizeof(T);
  const auto x = lanes<T>(a), y = lanes<T>(b);
  return make<__m512i, T>(mask, [&](size_t i) {
    const size_t from = i / kBlock * kBlock + i % kBlock / 2 + (high ? kBlock / 2 : 0);
    return i % 2 == 0 ? x[from] : y[from];
  });
}
template <class To>
EMULATED To saturated(int64_t x) {
  constexpr int64_t kLow = std::numeric_limits<To>::min(), kHigh = std::numeric_limits<To>::max();
  return static_cast<To>(x < kLow ? kLow : x > kHigh ? kHigh : x);
}
// Blocks of 16 bytes: those of a narrowed, then those of b.
template <class To, class From>
EMULATED __m512i pack(uint64_t mask, const __m512i& a, const __m512i& b) {
  constexpr size_t kBlock = 16 / sizeof(To);
  const auto x = lanes<From>(a), y = lanes<From>(b);
  return make<__m512i, To>(mask, [&](size_t i) {
    const size_t in = i % kBlock, from = i / kBlock * (kBlock / 2) + in % (kBlock / 2);
    return saturated<To>(in < kBlock / 2 ? x[from] : y[from]);
  });
}

EMULATED int32_t rounded(float x) {
  const double y = std::nearbyint(static_cast<double>(x));
  return y >= -2147483648.0 && y < 2147483648.0 ? static_cast<int32_t>(y) : std::numeric_limits<int32_t>::min();
}
EMULATED bool compare(float a, float b, int how) {
  switch (how) {
    case _CMP_UNORD_Q:
      return std::isnan(a) || std::isnan(b);
    case _CMP_NLT_UQ:
      return !(a < b);
    default:
      std::abort();
  }
}

// Numbers below the normal range count as zero, before and after.
EMULATED float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
EMULATED uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(flushed(x));
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
EMULATED float of_bf16(uint16_t x) { return flushed(std::bit_cast<float>(static_cast<uint32_t>(x) << 16)); }
EMULATED float dot(float sum, const uint16_t* a, const uint16_t* b) {
  sum = flushed(std::fma(of_bf16(a[1]), of_bf16(b[1]), flushed(sum)));
  return flushed(std::fma(of_bf16(a[0]), of_bf16(b[0]), sum));
}

// ---- AMX ---------------------------------------------------------------------------------------------------------

struct Tile {
  uint16_t row_bytes = 0;
  uint8_t rows = 0;
  alignas(64) uint8_t data[16][64] = {};
};
struct Tiles {
  bool configured = false;
  Tile tile[8];
};
inline thread_local Tiles tiles;

inline Tile& tile(int number) {
  Tile& t = tiles.tile[number];
  if (!tiles.configured || t.rows == 0) std::abort();  // the processor raises #UD
  return t;
}
inline void tile_config(const void* config) {
  const auto* bytes = static_cast<const uint8_t*>(config);
  tiles = {};
  tiles.configured = bytes[0] == 1;
  for (int i = 0; i < 8; ++i) {
    Tile& t = tiles.tile[i];
    std::memcpy(&t.row_bytes, bytes + 16 + 2 * i, 2);
    t.rows = bytes[48 + i];
    if (t.row_bytes > 64 || t.rows > 16) std::abort();
  }
}
inline void tile_load(int number, const void* from, int64_t stride) {
  Tile& t = tile(number);
  for (int r = 0; r < t.rows; ++r) std::memcpy(t.data[r], static_cast<const char*>(from) + r * stride, t.row_bytes);
}
inline void tile_store(int number, void* to, int64_t stride) {
  const Tile& t = tile(number);
  for (int r = 0; r < t.rows; ++r) std::memcpy(static_cast<char*>(to) + r * stride, t.data[r], t.row_bytes);
}
// sum(i, a's four bytes, b's four bytes) for all elements of c, which are 32 bits.
template <class T, class F>
void tile_product(int c, int a, int b, const F& sum) {
  Tile &z = tile(c), &x = tile(a), &y = tile(b);
  if (z.rows != x.rows || z.row_bytes != y.row_bytes || x.row_bytes / 4 != y.rows) std::abort();
  for (int m = 0; m < z.rows; ++m) {
    for (int k = 0; k < x.row_bytes / 4; ++k) {
      for (int n = 0; n < z.row_bytes / 4; ++n) {
        T value;
        std::memcpy(&value, z.data[m] + 4 * n, 4);
        value = sum(value, x.data[m] + 4 * k, y.data[k] + 4 * n);
        std::memcpy(z.data[m] + 4 * n, &value, 4);
      }
    }
  }
}
inline void tile_dot_bf16(int c, int a, int b) {
  tile_product<float>(c, a, b, [](float sum, const uint8_t* x, const uint8_t* y) {
    return dot(sum, as<std::array<uint16_t, 2>>(*reinterpret_cast<const std::array<uint8_t, 4>*>(x)).data(),
               as<std::array<uint16_t, 2>>(*reinterpret_cast<const std::array<uint8_t, 4>*>(y)).data());
  });
}
template <class A, class B>
void tile_dot_bytes(int c, int a, int b) {
  tile_product<int32_t>(c, a, b, [](int32_t sum, const uint8_t* x, const uint8_t* y) {
    for (int i = 0; i < 4; ++i) sum += static_cast<A>(x[i]) * static_cast<B>(y[i]);
    return sum;
  });
}
// VPDPBUSD, which is no intrinsic in the kernels (int8_dot.h).
template <class V>
EMULATED V dot_bytes(const V& sum, const V& x, const V& w) {
  const auto z = lanes<int32_t>(sum);
  const auto a = lanes<uint8_t>(x);
  const auto b = lanes<int8_t>(w);
  return make<V, int32_t>(kAll, [&](size_t i) {
    int32_t all = z[i];
    for (size_t j = 4 * i; j < 4 * i + 4; ++j) all += a[j] * b[j];
    return all;
  });
}
// The operating system's leave to use tiles.
inline long leave(...) { return 0; }

// ---- AVX-512 -----------------------------------------------------------------------------------------------------

EMULATED __m512i loadu_si512(const void* p) { return load<__m512i, uint8_t>(kAll, p); }
EMULATED void storeu_si512(void* p, const __m512i& x) { std::memcpy(p, &x, sizeof x); }
EMULATED __m512 maskz_loadu_ps(__mmask16 m, const void* p) { return load<__m512, float>(m, p); }
EMULATED __m512i maskz_loadu_epi16(__mmask32 m, const void* p) { return load<__m512i, uint16_t>(m, p); }
EMULATED __m512i maskz_loadu_epi8(__mmask64 m, const void* p) { return load<__m512i, uint8_t>(m, p); }
EMULATED __m256i half_maskz_loadu_epi16(__mmask16 m, const void* p) { return load<__m256i, uint16_t>(m, p); }
EMULATED __m128i quarter_maskz_loadu_epi8(__mmask16 m, const void* p) { return load<__m128i, uint8_t>(m, p); }
EMULATED void mask_storeu_ps(void* p, __mmask16 m, const __m512& x) { store<float>(p, m, x); }
EMULATED void mask_storeu_epi8(void* p, __mmask64 m, const __m512i& x) { store<uint8_t>(p, m, x); }
EMULATED void quarter_mask_storeu_epi8(void* p, __mmask16 m, const __m128i& x) { store<uint8_t>(p, m, x); }
EMULATED void stream_ps(void* p, const __m512& x) { std::memcpy(p, &x, sizeof x); }

EMULATED __m512i set1_epi32(int x) {
  return make<__m512i, int>(kAll, [&](size_t) { return x; });
}
EMULATED __m512i set1_epi16(short x) {
  return make<__m512i, short>(kAll, [&](size_t) { return x; });
}
EMULATED __m512i set1_epi8(char x) {
  return make<__m512i, char>(kAll, [&](size_t) { return x; });
}
EMULATED __m512 set1_ps(float x) {
  return make<__m512, float>(kAll, [&](size_t) { return x; });
}
EMULATED __m512i setzero_si512() { return __m512i{}; }

EMULATED __m512 mask_mov_ps(const __m512& other, __mmask16 m, const __m512& x) {
  return as<__m512>(blend<uint32_t>(m, as<__m512i>(other), as<__m512i>(x)));
}
EMULATED __m512i mask_or_epi32(const __m512i& other, __mmask16 m, const __m512i& a, const __m512i& b) {
  return blend<uint32_t>(m, other, a | b);
}
EMULATED __m512i add_epi32(const __m512i& a, const __m512i& b) {
  const auto x = lanes<uint32_t>(a), y = lanes<uint32_t>(b);
  return make<__m512i, uint32_t>(kAll, [&](size_t i) { return x[i] + y[i]; });
}
EMULATED __m512i maskz_adds_epi16(__mmask32 m, const __m512i& a, const __m512i& b) {
  const auto x = lanes<int16_t>(a), y = lanes<int16_t>(b);
  return make<__m512i, int16_t>(m, [&](size_t i) { return saturated<int16_t>(int64_t{x[i]} + y[i]); });
}
EMULATED __m512i madd_epi16(const __m512i& a, const __m512i& b) {
  const auto x = lanes<int16_t>(a), y = lanes<int16_t>(b);
  return make<__m512i, uint32_t>(kAll, [&](size_t i) {
    return static_cast<uint32_t>(x[2 * i] * y[2 * i]) + static_cast<uint32_t>(x[2 * i + 1] * y[2 * i + 1]);
  });
}
EMULATED __m512i maskz_max_epu8(__mmask64 m, const __m512i& a, const __m512i& b) {
  const auto x = lanes<uint8_t>(a), y = lanes<uint8_t>(b);
  return make<__m512i, uint8_t>(m, [&](size_t i) { return x[i] > y[i] ? x[i] : y[i]; });
}
EMULATED __m512 maskz_min_ps(__mmask16 m, const __m512& a, const __m512& b) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return make<__m512, float>(m, [&](size_t i) { return x[i] < y[i] ? x[i] : y[i]; });
}
EMULATED __m512 maskz_max_ps(__mmask16 m, const __m512& a, const __m512& b) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return make<__m512, float>(m, [&](size_t i) { return x[i] > y[i] ? x[i] : y[i]; });
}
EMULATED __m512 maskz_scalef_ps(__mmask16 m, const __m512& a, const __m512& b) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return make<__m512, float>(m, [&](size_t i) {
    if (std::isnan(y[i])) return y[i];
    const float power = std::floor(y[i]);
    return std::ldexp(x[i], power > 1000.0f ? 1000 : power < -1000.0f ? -1000 : static_cast<int>(power));
  });
}
EMULATED __mmask16 cmp_ps_mask(const __m512& a, const __m512& b, int how) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  unsigned mask = 0;
  for (size_t i = 0; i < x.size(); ++i) mask |= static_cast<unsigned>(compare(x[i], y[i], how)) << i;
  return static_cast<__mmask16>(mask);
}
EMULATED __mmask16 fpclass_ps_mask(const __m512& a, int classes) {
  if (classes != 0x20) std::abort();
  const auto x = lanes<float>(a);
  unsigned mask = 0;
  for (size_t i = 0; i < x.size(); ++i) mask |= static_cast<unsigned>(std::fpclassify(x[i]) == FP_SUBNORMAL) << i;
  return static_cast<__mmask16>(mask);
}
EMULATED __mmask16 quarter_test_epi8_mask(const __m128i& a, const __m128i& b) {
  const auto x = lanes<uint8_t>(a), y = lanes<uint8_t>(b);
  unsigned mask = 0;
  for (size_t i = 0; i < x.size(); ++i) mask |= static_cast<unsigned>((x[i] & y[i]) != 0) << i;
  return static_cast<__mmask16>(mask);
}

EMULATED __m512 maskz_permutexvar_ps(__mmask16 m, const __m512i& index, const __m512& a) {
  const auto from = lanes<uint32_t>(index);
  const auto x = lanes<float>(a);
  return make<__m512, float>(m, [&](size_t i) { return x[from[i] & 15]; });
}
EMULATED __m512i maskz_permutexvar_epi32(__mmask16 m, const __m512i& index, const __m512i& a) {
  const auto from = lanes<uint32_t>(index), x = lanes<uint32_t>(a);
  return make<__m512i, uint32_t>(m, [&](size_t i) { return x[from[i] & 15]; });
}
EMULATED __m512i permutexvar_epi16(const __m512i& index, const __m512i& a) {
  const auto from = lanes<uint16_t>(index), x = lanes<uint16_t>(a);
  return make<__m512i, uint16_t>(kAll, [&](size_t i) { return x[from[i] & 31]; });
}
EMULATED __m512i shuffle_epi8(const __m512i& a, const __m512i& index) {
  const auto x = lanes<uint8_t>(a), from = lanes<uint8_t>(index);
  return make<__m512i, uint8_t>(
      kAll, [&](size_t i) { return (from[i] & 0x80) != 0 ? uint8_t{0} : x[i / 16 * 16 + (from[i] & 15)]; });
}

EMULATED __m512i maskz_cvtps_epi32(__mmask16 m, const __m512& a) {
  const auto x = lanes<float>(a);
  return make<__m512i, int32_t>(m, [&](size_t i) { return rounded(x[i]); });
}
EMULATED __m512 maskz_cvtepi32_ps(__mmask16 m, const __m512i& a) {
  const auto x = lanes<int32_t>(a);
  return make<__m512, float>(m, [&](size_t i) { return static_cast<float>(x[i]); });
}
EMULATED __m128i maskz_cvtepi32_epi8(__mmask16 m, const __m512i& a) {
  const auto x = lanes<uint32_t>(a);
  return make<__m128i, uint8_t>(m, [&](size_t i) { return static_cast<uint8_t>(x[i]); });
}
EMULATED __m512i maskz_cvtepu8_epi32(__mmask16 m, const __m128i& a) {
  const auto x = lanes<uint8_t>(a);
  return make<__m512i, int32_t>(m, [&](size_t i) { return x[i]; });
}
EMULATED __m512i maskz_cvtepi8_epi32(__mmask16 m, const __m128i& a) {
  const auto x = lanes<int8_t>(a);
  return make<__m512i, int32_t>(m, [&](size_t i) { return x[i]; });
}
EMULATED __m512i maskz_cvtepi8_epi16(__mmask32 m, const __m256i& a) {
  const auto x = lanes<int8_t>(a);
  return make<__m512i, int16_t>(m, [&](size_t i) { return x[i]; });
}
EMULATED __m512 maskz_cvtph_ps(__mmask16 m, const __m256i& a) {
  const auto x = lanes<uint16_t>(a);
  return make<__m512, float>(m, [&](size_t i) { return _cvtsh_ss(x[i]); });
}
EMULATED __m256i maskz_cvtps_ph(__mmask16 m, const __m512& a) {
  const auto x = lanes<float>(a);
  return make<__m256i, uint16_t>(m, [&](size_t i) { return _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT); });
}
EMULATED __m256i cvtneps_pbh(const __m512& a) {
  const auto x = lanes<float>(a);
  return make<__m256i, uint16_t>(kAll, [&](size_t i) { return to_bf16(x[i]); });
}
EMULATED __m512i cvtne2ps_pbh(const __m512& high, const __m512& low) {
  const auto x = lanes<float>(low), y = lanes<float>(high);
  return make<__m512i, uint16_t>(kAll, [&](size_t i) { return to_bf16(i < 16 ? x[i] : y[i - 16]); });
}
EMULATED __m512 dpbf16_ps(const __m512& sum, const __m512bh& a, const __m512bh& b) {
  const auto z = lanes<float>(sum);
  const auto x = lanes<uint16_t>(a), y = lanes<uint16_t>(b);
  return make<__m512, float>(kAll, [&](size_t i) { return dot(z[i], &x[2 * i], &y[2 * i]); });
}

}  // namespace emulated

#define syscall emulated::leave

#define _mm512_load_si512(p) emulated::loadu_si512(p)
#define _mm512_loadu_si512(p) emulated::loadu_si512(p)
#define _mm512_storeu_si512(p, x) emulated::storeu_si512(p, x)
#define _mm512_maskz_loadu_ps(m, p) emulated::maskz_loadu_ps(m, p)
#define _mm512_maskz_loadu_epi16(m, p) emulated::maskz_loadu_epi16(m, p)
#define _mm512_maskz_loadu_epi8(m, p) emulated::maskz_loadu_epi8(m, p)
#define _mm256_maskz_loadu_epi16(m, p) emulated::half_maskz_loadu_epi16(m, p)
#define _mm_maskz_loadu_epi8(m, p) emulated::quarter_maskz_loadu_epi8(m, p)
#define _mm512_mask_storeu_ps(p, m, x) emulated::mask_storeu_ps(p, m, x)
#define _mm512_mask_storeu_epi8(p, m, x) emulated::mask_storeu_epi8(p, m, x)
#define _mm_mask_storeu_epi8(p, m, x) emulated::quarter_mask_storeu_epi8(p, m, x)
#define _mm512_stream_ps(p, x) emulated::stream_ps(p, x)
#define _mm512_set1_epi32 emulated::set1_epi32
#define _mm512_set1_epi16 emulated::set1_epi16
#define _mm512_set1_epi8 emulated::set1_epi8
#define _mm512_set1_ps emulated::set1_ps
#define _mm512_setzero_si512 emulated::setzero_si512
#define _mm512_mask_blend_epi16(m, a, b) emulated::blend<uint16_t>(m, a, b)
#define _mm512_mask_mov_ps emulated::mask_mov_ps
#define _mm512_mask_or_epi32 emulated::mask_or_epi32
#define _mm512_add_epi32 emulated::add_epi32
#define _mm512_maskz_adds_epi16 emulated::maskz_adds_epi16
#define _mm512_madd_epi16 emulated::madd_epi16
#define _mm512_maskz_max_epu8 emulated::maskz_max_epu8
#define _mm512_maskz_min_ps emulated::maskz_min_ps
#define _mm512_maskz_max_ps emulated::maskz_max_ps
#define _mm512_maskz_scalef_ps emulated::maskz_scalef_ps
#define _mm512_cmp_ps_mask(a, b, how) emulated::cmp_ps_mask(a, b, how)
#define _mm512_fpclass_ps_mask(a, classes) emulated::fpclass_ps_mask(a, classes)
#define _mm_test_epi8_mask emulated::quarter_test_epi8_mask
#define _mm512_maskz_permutexvar_ps emulated::maskz_permutexvar_ps
#define _mm512_maskz_permutexvar_epi32 emulated::maskz_permutexvar_epi32
#define _mm512_permutexvar_epi16 emulated::permutexvar_epi16
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#define _mm512_maskz_unpacklo_epi8(m, a, b) emulated::unpack<uint8_t>(m, a, b, false)
#define _mm512_maskz_unpackhi_epi8(m, a, b) emulated::unpack<uint8_t>(m, a, b, true)
#define _mm512_maskz_unpacklo_epi16(m, a, b) emulated::unpack<uint16_t>(m, a, b, false)
#define _mm512_maskz_unpackhi_epi16(m, a, b) emulated::unpack<uint16_t>(m, a, b, true)
#define _mm512_maskz_packs_epi32(m, a, b) (emulated::pack<int16_t, int32_t>(m, a, b))
#define _mm512_maskz_packus_epi16(m, a, b) (emulated::pack<uint8_t, int16_t>(m, a, b))
#define _mm512_maskz_cvtps_epi32 emulated::maskz_cvtps_epi32
#define _mm512_maskz_cvtepi32_ps emulated::maskz_cvtepi32_ps
#define _mm512_maskz_cvtepi32_epi8 emulated::maskz_cvtepi32_epi8
#define _mm512_maskz_cvtepu8_epi32 emulated::maskz_cvtepu8_epi32
#define _mm512_maskz_cvtepi8_epi32 emulated::maskz_cvtepi8_epi32
#define _mm512_maskz_cvtepi8_epi16 emulated::maskz_cvtepi8_epi16
#define _mm512_maskz_cvtph_ps emulated::maskz_cvtph_ps
#define _mm512_maskz_cvtps_ph(m, a, how) emulated::maskz_cvtps_ph(m, a)
#define _mm512_cvtneps_pbh emulated::cvtneps_pbh
#define _mm512_cvtne2ps_pbh emulated::cvtne2ps_pbh
#define _mm512_dpbf16_ps emulated::dpbf16_ps

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig emulated::tile_config
#define _tile_release() (emulated::tiles = {})
#define _tile_loadd(tile, from, stride) emulated::tile_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated::tile_store(tile, to, stride)
#define _tile_dpbf16ps emulated::tile_dot_bf16
#define _tile_dpbusd emulated::tile_dot_bytes<uint8_t, int8_t>
#define AOTPACK_DPBUSD(sum, x, w) (sum = emulated::dot_bytes(sum, x, w))
