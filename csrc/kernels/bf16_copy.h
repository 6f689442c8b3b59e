// Copies of a few elements of bf16, without a call for each.
#pragma once

#include "simd.h"

namespace aotpack::kernels {

#if defined(__AVX512BW__)
AOTPACK_INLINE __mmask32 first_elements(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : n > 0 ? (__mmask32{1} << n) - 1 : 0;
}

// The first n elements of x, in pieces: stores with a mask take AMD's processors tens of cycles.
AOTPACK_INLINE void store_first(int64_t n, bf16* p, __m512i x) {
  if (n >= 32) {
    _mm512_storeu_si512(p, x);
    return;
  }
  const auto all = reinterpret_cast<uint64_t __attribute__((vector_size(64)))>(x);
  auto y = reinterpret_cast<__m256i>(__builtin_shufflevector(all, all, 0, 1, 2, 3));
  if ((n & 16) != 0) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), y);
    y = reinterpret_cast<__m256i>(__builtin_shufflevector(all, all, 4, 5, 6, 7));
    p += 16;
  }
  __m128i z = _mm256_castsi256_si128(y);
  if ((n & 8) != 0) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), z);
    z = _mm256_extracti128_si256(y, 1);
    p += 8;
  }
  if ((n & 4) != 0) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), z);
    z = _mm_srli_si128(z, 8);
    p += 4;
  }
  uint64_t rest = static_cast<uint64_t>(_mm_cvtsi128_si64(z));
  if ((n & 2) != 0) {
    std::memcpy(p, &rest, 4);
    rest >>= 32;
    p += 2;
  }
  if ((n & 1) != 0) std::memcpy(p, &rest, 2);
}
#endif

// to[i] = from[i] for i < count, 0 for count <= i < padded.
AOTPACK_INLINE void copy_padded(const bf16* from, int64_t count, int64_t padded, bf16* to) {
#if defined(__AVX512BW__)
  for (int64_t i = 0; i < padded; i += 32) {
    store_first(padded - i, to + i, _mm512_maskz_loadu_epi16(first_elements(count - i), from + i));
  }
#else
  for (int64_t i = 0; i < padded; ++i) to[i] = i < count ? from[i] : bf16{};
#endif
}

// The same in whole vectors: up to 31 elements behind `padded` become zero, too.
AOTPACK_INLINE void copy_vectors(const bf16* from, int64_t count, int64_t padded, bf16* to) {
#if defined(__AVX512BW__)
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
  for (; i < padded; i += 32)
    _mm512_storeu_si512(to + i, _mm512_maskz_loadu_epi16(first_elements(count - i), from + i));
#else
  copy_padded(from, count, padded, to);
#endif
}

// copy_vectors for `rows` rows of `count` elements each, none of them padded.
AOTPACK_INLINE void copy_runs(const bf16* from, int64_t from_stride, int64_t count, int64_t rows, bf16* to,
                              int64_t to_stride) {
#if defined(__AVX512BW__)
  if (count <= 0) return;
  const int64_t whole = (count - 1) / 32 * 32;
  const __mmask32 rest = first_elements(count - whole);
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    for (int64_t i = 0; i < whole; i += 32) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
    _mm512_storeu_si512(to + whole, _mm512_maskz_loadu_epi16(rest, from + whole));
  }
#else
  for (int64_t r = 0; r < rows; ++r) copy_vectors(from + r * from_stride, count, count, to + r * to_stride);
#endif
}

}  // namespace aotpack::kernels
