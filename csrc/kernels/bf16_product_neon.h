// What bf16_product.cpp defines by ARM's instructions for bf16: products of 2 x 4 by 4 x 2 elements (BFMMLA), and dot
// products of pairs (BFDOT) for few rows. BFMMLA computes twice as much, rounded as two BFDOT would.
#pragma once

#include <array>
#include <utility>

#include "bf16_product.h"
#include "neon_halves.h"
#include "simd.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>

namespace aotpack::kernels::neon_bf16 {

constexpr int64_t kAhead = 16 * kPanel;  // elements of a panel that are asked for ahead of time
constexpr int64_t kChunk = 8;            // elements of a vector
constexpr int kVectors = 4;              // of half a panel

AOTPACK_INLINE uint16x8_t load_halves(const bf16* p) {
  uint16x8_t x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
AOTPACK_INLINE void store_halves(bf16* p, uint16x8_t x) { std::memcpy(p, &x, sizeof x); }
// The pair of elements at p, in every lane.
AOTPACK_INLINE uint16x8_t repeat_pair(const bf16* p) {
  uint32_t both;
  std::memcpy(&both, p, sizeof both);
  return vreinterpretq_u16_u32(vdupq_n_u32(both));
}

AOTPACK_INLINE float32x4_t dot(float32x4_t sum, uint16x8_t pairs, uint16x8_t b) {
  return vbfdotq_f32(sum, vreinterpretq_bf16_u16(b), vreinterpretq_bf16_u16(pairs));
}

// sum + rows * columns of 2 x 4 elements each, both [2][4]: [2 rows][2 columns].
AOTPACK_INLINE float32x4_t multiply_add(float32x4_t sum, uint16x8_t rows, uint16x8_t columns) {
  return vbfmmlaq_f32(sum, vreinterpretq_bf16_u16(rows), vreinterpretq_bf16_u16(columns));
}

// Rows in pairs, the last of an odd number twice: an instruction multiplies two of them by two columns.
template <int kRows>
void multiply_rows(const Bf16Args& g) {
  constexpr int kPairs = (kRows + 1) / 2, kColumnPairs = 2 * kVectors;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t column = half * kVectors * 4;
    float32x4_t sums[kPairs][kColumnPairs];
    AOTPACK_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const float *first = g.init + 2 * p * g.init_stride + column,
                  *second = 2 * p + 1 < kRows ? first + g.init_stride : first;
      AOTPACK_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const float32x4_t x = vld1q_f32(first + 4 * v), y = vld1q_f32(second + 4 * v);
        sums[p][2 * v] = lower_halves(x, y);
        sums[p][2 * v + 1] = upper_halves(x, y);
      }
    }
    const bf16 *a = g.rows, *b = g.paired + 4 * column;
    const auto step = [&](const uint16x8_t(&x)[kPairs]) __attribute__((always_inline)) {
      AOTPACK_UNROLL
      for (int c = 0; c < kColumnPairs; ++c) {
        const uint16x8_t columns = load_halves(b + kChunk * c);
        AOTPACK_UNROLL
        for (int p = 0; p < kPairs; ++p) {
          sums[p][c] = multiply_add(sums[p][c], x[p], columns);
          // The next columns are loaded behind this product: compilers would load many first, for which no registers
          // are left.
          asm("" : "+r"(b), "+w"(sums[p][c]));
        }
      }
      b += 4 * kPanel;
    };
    int64_t i = 0;
    for (; i + kChunk <= g.k; i += kChunk, a += kChunk) {
      uint16x8_t low[kPairs], high[kPairs];
      AOTPACK_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const uint16x8_t x = load_halves(a + 2 * p * g.stride),
                         y = 2 * p + 1 < kRows ? load_halves(a + (2 * p + 1) * g.stride) : x;
        low[p] = lower_halves(x, y);
        high[p] = upper_halves(x, y);
        asm("" : "+r"(a), "+w"(low[p]), "+w"(high[p]));  // as above, for rows
      }
      step(low);
      step(high);
    }
    if (i < g.k) {
      uint16x8_t x[kPairs];
      AOTPACK_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        uint64_t both[2];
        std::memcpy(both, a + 2 * p * g.stride, sizeof *both);
        std::memcpy(both + 1, a + (2 * p + 1 < kRows ? 2 * p + 1 : 2 * p) * g.stride, sizeof *both);
        std::memcpy(&x[p], both, sizeof both);
      }
      step(x);
    }
    AOTPACK_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      float* to = g.sums + 2 * p * g.sums_stride + column;
      AOTPACK_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        vst1q_f32(to + 4 * v, lower_halves(sums[p][2 * v], sums[p][2 * v + 1]));
        if (2 * p + 1 == kRows) continue;
        vst1q_f32(to + g.sums_stride + 4 * v, upper_halves(sums[p][2 * v], sums[p][2 * v + 1]));
      }
    }
  }
}

template <int kRows>
void few_rows(const bf16* rows, int64_t stride, int64_t k, const bf16* panel, const float* init, float* sums) {
  // Of the even columns, then of the odd ones.
  float32x4_t acc[kRows][2][kVectors];
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2 * kVectors; ++v) acc[r][v / kVectors][v % kVectors] = vld1q_f32(init + 4 * v);
  }
  for (int64_t i = 0; i < k; i += 2, panel += 2 * kPanel) {
    const bool whole = i + 1 < k;
    uint16x8_t x[kRows];
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      bf16 both[2] = {rows[r * stride + i], whole ? rows[r * stride + i + 1] : bf16{}};
      x[r] = repeat_pair(both);
    }
    __builtin_prefetch(panel + kAhead);
    __builtin_prefetch(panel + kAhead + kPanel);
    AOTPACK_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const uint16x8_t even = load_halves(panel + kChunk * v),
                       odd = whole ? load_halves(panel + kPanel + kChunk * v) : vdupq_n_u16(0);
      const uint16x8_t first = vtrn1q_u16(even, odd), second = vtrn2q_u16(even, odd);
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r][0][v] = dot(acc[r][0][v], x[r], first);
        acc[r][1][v] = dot(acc[r][1][v], x[r], second);
      }
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2 * kVectors; ++v) vst1q_f32(sums + r * kPanel + 4 * v, acc[r][v / kVectors][v % kVectors]);
  }
}

template <int... kRow>
constexpr std::array<void (*)(const Bf16Args&), sizeof...(kRow)> row_kernels(std::integer_sequence<int, kRow...>) {
  return {multiply_rows<kRow + 1>...};
}
template <int... kRow>
constexpr std::array<decltype(&few_rows<1>), sizeof...(kRow)> few_row_kernels(std::integer_sequence<int, kRow...>) {
  return {few_rows<kRow + 1>...};
}

// Pairs of four columns, of rows 0 and 1 and of rows 2 and 3: [4 columns][4].
AOTPACK_INLINE void store_columns(bf16* to, uint16x8_t upper, uint16x8_t lower) {
  const uint32x4_t x = vreinterpretq_u32_u16(upper), y = vreinterpretq_u32_u16(lower);
  store_halves(to, vreinterpretq_u16_u32(vzip1q_u32(x, y)));
  store_halves(to + kChunk, vreinterpretq_u16_u32(vzip2q_u32(x, y)));
}

inline void pair_panel(const bf16* panel, int64_t stride, int64_t columns, int64_t k, bf16* paired) {
  bf16 padded[4][kPanel] = {};
  for (int64_t i = 0; i < bf16_padded(k); i += 4, paired += 4 * kPanel) {
    const bf16* rows[4];
    for (int64_t r = 0; r < 4; ++r) {
      const bool inside = i + r < k;
      rows[r] = inside && columns == kPanel ? panel + (i + r) * stride : padded[r];
      if (rows[r] != padded[r]) continue;
      std::memset(padded[r], 0, sizeof padded[r]);
      if (inside) std::memcpy(padded[r], panel + (i + r) * stride, static_cast<size_t>(columns) * sizeof(bf16));
    }
    for (int64_t j = 0; j < kPanel; j += kChunk) {
      uint16x8_t x[4];
      AOTPACK_UNROLL
      for (int r = 0; r < 4; ++r) x[r] = load_halves(rows[r] + j);
      store_columns(paired + 4 * j, vzip1q_u16(x[0], x[1]), vzip1q_u16(x[2], x[3]));
      store_columns(paired + 4 * j + 2 * kChunk, vzip2q_u16(x[0], x[1]), vzip2q_u16(x[2], x[3]));
    }
  }
}

inline void split_panel(const bf16* panel, int64_t k, bf16* paired) {
  for (int64_t i = 0; i < bf16_padded(k); i += 4, panel += 4 * kPanel, paired += 4 * kPanel) {
    for (int64_t j = 0; j < kPanel; j += kChunk) {
      uint16x8_t x[4];
      AOTPACK_UNROLL
      for (int r = 0; r < 4; ++r) x[r] = i + r < k ? load_halves(panel + r * kPanel + j) : vdupq_n_u16(0);
      // The even columns are the first half of a step, the odd ones the second.
      store_columns(paired + 2 * j, vtrn1q_u16(x[0], x[1]), vtrn1q_u16(x[2], x[3]));
      store_columns(paired + 2 * j + 2 * kPanel, vtrn2q_u16(x[0], x[1]), vtrn2q_u16(x[2], x[3]));
    }
  }
}

}  // namespace aotpack::kernels::neon_bf16

#endif
