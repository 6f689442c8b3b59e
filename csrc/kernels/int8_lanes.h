// Vectors of bytes of any width that the target has, their interleaving into lanes of four bytes, and the way back from
// lanes of 32 bits to bytes. A vector of `size` bytes holds `size` channels; interleaved, they are four vectors of
// lanes: lane l of vector v is channel 16 * (l / 4) + 4 * v + l % 4.
#pragma once

#include "int8_dot.h"

namespace aotpack::kernels {

template <int size>
struct ByteLanes {
  typedef uint8_t bytes __attribute__((vector_size(size)));
  typedef int16_t halves __attribute__((vector_size(size)));
  typedef int32_t words __attribute__((vector_size(size)));
  typedef uint32_t unsigned_words __attribute__((vector_size(size)));
  typedef float floats __attribute__((vector_size(size)));
};

template <class V>
AOTPACK_INLINE V load_as(const void* p) {
  V x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

// Of each 16 bytes of both, the lower (or upper) eight bytes (or four halves), by turns.
template <int size>
struct Interleave;
template <>
struct Interleave<16> {
  using Bytes = ByteLanes<16>::bytes;
  using Halves = ByteLanes<16>::halves;
  static AOTPACK_INLINE Bytes low(Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  }
  static AOTPACK_INLINE Bytes high(Bytes a, Bytes b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
  static AOTPACK_INLINE Halves low(Halves a, Halves b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static AOTPACK_INLINE Halves high(Halves a, Halves b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
#if defined(__AVX2__)
template <>
struct Interleave<32> {
  using Bytes = ByteLanes<32>::bytes;
  using Halves = ByteLanes<32>::halves;
  static AOTPACK_INLINE Bytes low(Bytes a, Bytes b) {
    return reinterpret_cast<Bytes>(_mm256_unpacklo_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  static AOTPACK_INLINE Bytes high(Bytes a, Bytes b) {
    return reinterpret_cast<Bytes>(_mm256_unpackhi_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  static AOTPACK_INLINE Halves low(Halves a, Halves b) {
    return reinterpret_cast<Halves>(_mm256_unpacklo_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  static AOTPACK_INLINE Halves high(Halves a, Halves b) {
    return reinterpret_cast<Halves>(_mm256_unpackhi_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
};
#endif
// Masked forms are free, and spare GCC 12's plain ones, which warn.
#if defined(__AVX512BW__)
template <>
struct Interleave<64> {
  using Bytes = ByteLanes<64>::bytes;
  using Halves = ByteLanes<64>::halves;
  static constexpr __mmask64 kBytes = ~__mmask64{0};
  static constexpr __mmask32 kHalves = ~__mmask32{0};
  static AOTPACK_INLINE __m512i raw(Bytes a) { return reinterpret_cast<__m512i>(a); }
  static AOTPACK_INLINE __m512i raw(Halves a) { return reinterpret_cast<__m512i>(a); }
  static AOTPACK_INLINE Bytes low(Bytes a, Bytes b) {
    return reinterpret_cast<Bytes>(_mm512_maskz_unpacklo_epi8(kBytes, raw(a), raw(b)));
  }
  static AOTPACK_INLINE Bytes high(Bytes a, Bytes b) {
    return reinterpret_cast<Bytes>(_mm512_maskz_unpackhi_epi8(kBytes, raw(a), raw(b)));
  }
  static AOTPACK_INLINE Halves low(Halves a, Halves b) {
    return reinterpret_cast<Halves>(_mm512_maskz_unpacklo_epi16(kHalves, raw(a), raw(b)));
  }
  static AOTPACK_INLINE Halves high(Halves a, Halves b) {
    return reinterpret_cast<Halves>(_mm512_maskz_unpackhi_epi16(kHalves, raw(a), raw(b)));
  }
};
#endif

// Bytes of two vectors by turns.
template <int size>
struct BytePairs {
  typename ByteLanes<size>::halves low, high;
};
template <int size>
AOTPACK_INLINE BytePairs<size> pairs_of(typename ByteLanes<size>::bytes a, typename ByteLanes<size>::bytes b) {
  using Halves = typename ByteLanes<size>::halves;
  return {reinterpret_cast<Halves>(Interleave<size>::low(a, b)),
          reinterpret_cast<Halves>(Interleave<size>::high(a, b))};
}
template <int size>
AOTPACK_INLINE void fours_of(const BytePairs<size>& a, const BytePairs<size>& b,
                             typename ByteLanes<size>::words (&fours)[4]) {
  using Words = typename ByteLanes<size>::words;
  fours[0] = reinterpret_cast<Words>(Interleave<size>::low(a.low, b.low));
  fours[1] = reinterpret_cast<Words>(Interleave<size>::high(a.low, b.low));
  fours[2] = reinterpret_cast<Words>(Interleave<size>::low(a.high, b.high));
  fours[3] = reinterpret_cast<Words>(Interleave<size>::high(a.high, b.high));
}
// Each byte as a lane.
template <int size>
AOTPACK_INLINE void lanes_of(typename ByteLanes<size>::bytes x, typename ByteLanes<size>::words (&lanes)[4]) {
  const BytePairs<size> pairs = pairs_of<size>(x, typename ByteLanes<size>::bytes{}), none{};
  fours_of<size>(pairs, none, lanes);
}

// What the way back does to floats: at most `most`, rounded to the nearest, ties to even; `zero` is added, and what is
// then below `least` becomes that. `most + zero` and `least` are unsigned bytes.
struct ByteRange {
  float most;
  int zero, least;
};

// `least` for a whole limit in front of the zero point; 0 for one that is infinite, as floats have it, or no number.
inline int least_byte(float limit, int zero) {
  return limit >= static_cast<float>(-zero) && limit <= 255.0f ? static_cast<int>(limit) + zero : 0;
}

// Conversions of 32-bit lanes, saturating where there are instructions for it.
template <int size>
struct Narrow {
  static constexpr bool kSaturates = false;
};
#if defined(__SSE2__)
template <>
struct Narrow<16> {
  static constexpr bool kSaturates = true;
  using Raw = __m128i;
  static AOTPACK_INLINE Raw words(ByteLanes<16>::floats x, float most) {
    return _mm_cvtps_epi32(_mm_min_ps(reinterpret_cast<__m128>(x), _mm_set1_ps(most)));
  }
  static AOTPACK_INLINE Raw halves(Raw low, Raw high, int zero) {
    return _mm_adds_epi16(_mm_packs_epi32(low, high), _mm_set1_epi16(static_cast<short>(zero)));
  }
  static AOTPACK_INLINE Raw bytes(Raw low, Raw high, int least) {
    return _mm_max_epu8(_mm_packus_epi16(low, high), _mm_set1_epi8(static_cast<char>(least)));
  }
};
#endif
#if defined(__AVX2__)
template <>
struct Narrow<32> {
  static constexpr bool kSaturates = true;
  using Raw = __m256i;
  static AOTPACK_INLINE Raw words(ByteLanes<32>::floats x, float most) {
    return _mm256_cvtps_epi32(_mm256_min_ps(reinterpret_cast<__m256>(x), _mm256_set1_ps(most)));
  }
  static AOTPACK_INLINE Raw halves(Raw low, Raw high, int zero) {
    return _mm256_adds_epi16(_mm256_packs_epi32(low, high), _mm256_set1_epi16(static_cast<short>(zero)));
  }
  static AOTPACK_INLINE Raw bytes(Raw low, Raw high, int least) {
    return _mm256_max_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8(static_cast<char>(least)));
  }
};
#endif
#if defined(__AVX512BW__)
template <>
struct Narrow<64> {
  static constexpr bool kSaturates = true;
  using Raw = __m512i;
  static constexpr __mmask16 kWords = 0xffff;
  static constexpr __mmask32 kHalves = ~__mmask32{0};
  static constexpr __mmask64 kBytes = ~__mmask64{0};
  static AOTPACK_INLINE Raw words(ByteLanes<64>::floats x, float most) {
    return _mm512_maskz_cvtps_epi32(kWords,
                                    _mm512_maskz_min_ps(kWords, reinterpret_cast<__m512>(x), _mm512_set1_ps(most)));
  }
  static AOTPACK_INLINE Raw halves(Raw low, Raw high, int zero) {
    return _mm512_maskz_adds_epi16(kHalves, _mm512_maskz_packs_epi32(kHalves, low, high),
                                   _mm512_set1_epi16(static_cast<short>(zero)));
  }
  static AOTPACK_INLINE Raw bytes(Raw low, Raw high, int least) {
    return _mm512_maskz_max_epu8(kBytes, _mm512_maskz_packus_epi16(kBytes, low, high),
                                 _mm512_set1_epi8(static_cast<char>(least)));
  }
};
#endif

template <int size>
AOTPACK_INLINE
    typename ByteLanes<size>::bytes bytes_from(const typename ByteLanes<size>::floats (&x)[4], const ByteRange& range) {
  using Bytes = typename ByteLanes<size>::bytes;
  using N = Narrow<size>;
  if constexpr (N::kSaturates) {
    // A float below all int32 becomes the least of these, and saturates as it should.
    const auto low = N::halves(N::words(x[0], range.most), N::words(x[1], range.most), range.zero);
    const auto high = N::halves(N::words(x[2], range.most), N::words(x[3], range.most), range.zero);
    return reinterpret_cast<Bytes>(N::bytes(low, high, range.least));
  } else {
    using Words = typename ByteLanes<size>::words;
    using Floats = typename ByteLanes<size>::floats;
    using Halves = typename ByteLanes<size>::halves;
    const Floats least = static_cast<float>(range.least - range.zero) - Floats{}, most = range.most - Floats{};
    Halves halves[4];
    AOTPACK_UNROLL
    for (int v = 0; v < 4; ++v) {
      Floats y = x[v] < most ? x[v] : most;
      y = y > least ? y : least;
      // Pushes the fraction out of the mantissa.
      const Words word = reinterpret_cast<Words>(y + 12582912.0f) - (0x4b400000 - range.zero);
      halves[v] = reinterpret_cast<Halves>(word);
    }
#if defined(AOTPACK_SVE256)
    if constexpr (size == 32) {
      const Halves low = svuzp1_s16(halves[0], halves[1]), high = svuzp1_s16(halves[2], halves[3]);
      return svuzp1_u8(reinterpret_cast<Bytes>(low), reinterpret_cast<Bytes>(high));
    } else
#endif
    {
      const auto low = __builtin_shufflevector(halves[0], halves[1], 0, 2, 4, 6, 8, 10, 12, 14);
      const auto high = __builtin_shufflevector(halves[2], halves[3], 0, 2, 4, 6, 8, 10, 12, 14);
      return __builtin_shufflevector(reinterpret_cast<Bytes>(low), reinterpret_cast<Bytes>(high), 0, 2, 4, 6, 8, 10, 12,
                                     14, 16, 18, 20, 22, 24, 26, 28, 30);
    }
  }
}

}  // namespace aotpack::kernels
