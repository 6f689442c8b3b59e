// What bf16_product.cpp defines by ARM's dot products of pairs of bf16 (BFDOT), for vectors of four columns.
#pragma once

#include <array>
#include <utility>

#include "bf16_product.h"
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
template <int kLane>
AOTPACK_INLINE float32x4_t dot_lane(float32x4_t sum, uint16x8_t pairs, uint16x8_t b) {
  return vbfdotq_laneq_f32(sum, vreinterpretq_bf16_u16(b), vreinterpretq_bf16_u16(pairs), kLane);
}

template <int kRows>
void multiply_rows(const Bf16Args& g) {
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t column = half * kVectors * 4;
    float32x4_t sums[kRows][kVectors];
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = vld1q_f32(g.init + r * g.init_stride + column + 4 * v);
    }
    const bf16 *a = g.rows, *b = g.paired + 2 * column;
    int64_t i = 0;
    for (; i + kChunk <= g.k; i += kChunk, a += kChunk) {
      uint16x8_t x[kRows];
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) x[r] = load_halves(a + r * g.stride);
      const auto step = [&]<int kLane>(std::integral_constant<int, kLane>) __attribute__((always_inline)) {
        AOTPACK_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const uint16x8_t columns = load_halves(b + kChunk * v);
          AOTPACK_UNROLL
          for (int r = 0; r < kRows; ++r) sums[r][v] = dot_lane<kLane>(sums[r][v], x[r], columns);
        }
        b += 2 * kPanel;
      };
      step(std::integral_constant<int, 0>());
      step(std::integral_constant<int, 1>());
      step(std::integral_constant<int, 2>());
      step(std::integral_constant<int, 3>());
    }
    for (; i < g.k; i += 2, a += 2, b += 2 * kPanel) {
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const uint16x8_t x = repeat_pair(a + r * g.stride);
        AOTPACK_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[r][v] = dot(sums[r][v], x, load_halves(b + kChunk * v));
      }
    }
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kVectors; ++v) vst1q_f32(g.sums + r * g.sums_stride + column + 4 * v, sums[r][v]);
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

inline void pair_panel(const bf16* panel, int64_t stride, int64_t columns, int64_t k, bf16* paired) {
  for (int64_t i = 0; i < bf16_padded(k); i += 2, paired += 2 * kPanel) {
    bf16 rows[2][kPanel] = {};
    for (int64_t r = 0; r < min64(2, k - i); ++r) {
      std::memcpy(rows[r], panel + (i + r) * stride, static_cast<size_t>(columns) * sizeof(bf16));
    }
    for (int64_t j = 0; j < kPanel; j += kChunk) {
      const uint16x8_t even = load_halves(rows[0] + j), odd = load_halves(rows[1] + j);
      store_halves(paired + 2 * j, vzip1q_u16(even, odd));
      store_halves(paired + 2 * j + kChunk, vzip2q_u16(even, odd));
    }
  }
}

inline void split_panel(const bf16* panel, int64_t k, bf16* paired) {
  for (int64_t i = 0; i < bf16_padded(k); i += 2, panel += 2 * kPanel, paired += 2 * kPanel) {
    for (int64_t j = 0; j < kPanel; j += kChunk) {
      const uint16x8_t even = load_halves(panel + j),
                       odd = i + 1 < k ? load_halves(panel + kPanel + j) : vdupq_n_u16(0);
      store_halves(paired + j, vtrn1q_u16(even, odd));
      store_halves(paired + kPanel + j, vtrn2q_u16(even, odd));
    }
  }
}

}  // namespace aotpack::kernels::neon_bf16

#endif
