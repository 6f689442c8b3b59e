// A tile of an 8-bit product by ARM's instruction for products of 2 x 8 unsigned by 8 x 2 signed bytes (USMMLA): twice
// the arithmetic of a dot product of fours.
#pragma once

#include "int8_dot.h"
#include "neon_halves.h"

namespace aotpack::kernels {

// Operands of a tile, which are the same for all rows.
struct Int8TileArgs {
  const int64_t* taps;  // offsets
  int64_t outer, steps;
  const int8_t* w;      // [outer * steps][32][4]
  int64_t panel_bytes;  // from one panel to the next
  const int32_t* init;
  const int32_t* weight_zero;
  const uint8_t* ones;
  int64_t begin;  // of the group's channels in a window
};

#if defined(__ARM_FEATURE_MATMUL_INT8)

inline constexpr bool kInt8Matrix = true;
// What the instruction reads of a panel: its columns in pairs, eight bytes of each, for both halves of its columns. The
// last four bytes of a run with an odd number of steps are followed by zeros.
inline int64_t int8_matrix_bytes(int64_t outer, int64_t steps) { return outer * ceil_div(steps, 2) * 8 * kPanel; }
// How a tile gets it: from the packed weights, to keep it for the next tiles or not, or from what an earlier one kept.
enum class Int8Columns { pair, pair_and_keep, kept };

namespace detail {
template <class V>
AOTPACK_INLINE V load_vector(const void* p) {
  V x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
}  // namespace detail

// `rows` windows, 2 * kPairs or one less, by a panel, into sums[rows][32]. Unless kUnsigned, the bytes of
// windows are signed (SMMLA).
template <int kPairs, Int8Columns kColumns, bool kUnsigned = true>
void int8_matrix_tile(const Int8TileArgs& t, const uint8_t* const* windows, int rows, int8_t* kept, int32_t* sums) {
  using namespace detail;
  constexpr int kVectors = 4, kLanes = 4;                    // of half a panel
  constexpr int64_t kStep = 4 * kPanel, kHalf = 4 * kPanel;  // bytes of four rows of a panel, of eight of its half
  const uint8_t* x[2 * kPairs];
  for (int r = 0; r < 2 * kPairs; ++r) x[r] = windows[r < rows ? r : rows - 1] + t.begin;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t column = half * kVectors * kLanes;
    int32x4_t sum[kPairs][2 * kVectors];
    AOTPACK_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int32x4_t init = vld1q_s32(t.init + column + v * kLanes);
      AOTPACK_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        sum[p][2 * v] = lower_halves(init, init);
        sum[p][2 * v + 1] = upper_halves(init, init);
      }
    }
    const int8_t* w = kColumns == Int8Columns::kept ? kept : t.w + 4 * column;
    // Eight bytes of each window by those of each column; of the columns, four where there is no second step.
    const auto step = [&](const uint8x16_t(&bytes)[kPairs], bool second) __attribute__((always_inline)) {
      AOTPACK_UNROLL
      for (int c = 0; c < 2 * kVectors; ++c) {
        int8x16_t columns;
        if constexpr (kColumns == Int8Columns::kept) {
          columns = vld1q_s8(w + 16 * c);
        } else {
          const int32x4_t first = load_vector<int32x4_t>(w + c / 2 * 16);
          const int32x4_t next = second ? load_vector<int32x4_t>(w + kStep + c / 2 * 16) : vdupq_n_s32(0);
          columns = vreinterpretq_s8_s32(c % 2 == 0 ? vzip1q_s32(first, next) : vzip2q_s32(first, next));
          if constexpr (kColumns == Int8Columns::pair_and_keep) vst1q_s8(kept + 16 * c, columns);
        }
        AOTPACK_UNROLL
        for (int p = 0; p < kPairs; ++p) {
          sum[p][c] = kUnsigned ? vusmmlaq_s32(sum[p][c], bytes[p], columns)
                                : vmmlaq_s32(sum[p][c], vreinterpretq_s8_u8(bytes[p]), columns);
          // The next columns are loaded behind this product: compilers would load many first, for which no registers
          // are left.
          asm("" : "+r"(w), "+w"(sum[p][c]));
        }
      }
      w += kColumns == Int8Columns::kept ? kHalf : second ? 2 * kStep : kStep;
      if constexpr (kColumns == Int8Columns::pair_and_keep) kept += kHalf;
    };
    for (int64_t tap = 0; tap < t.outer; ++tap) {
      int64_t i = t.taps[tap], left = t.steps;
      for (; left >= 4; left -= 4, i += 16) {
        uint8x16_t low[kPairs], high[kPairs];
        AOTPACK_UNROLL
        for (int p = 0; p < kPairs; ++p) {
          const uint8x16_t a = vld1q_u8(x[2 * p] + i), b = vld1q_u8(x[2 * p + 1] + i);
          low[p] = lower_halves(a, b);
          high[p] = upper_halves(a, b);
          asm("" : "+r"(i), "+w"(low[p]), "+w"(high[p]));  // as above, for windows
        }
        step(low, true);
        step(high, true);
      }
      if (left >= 2) {
        uint8x16_t bytes[kPairs];
        AOTPACK_UNROLL
        for (int p = 0; p < kPairs; ++p) bytes[p] = vcombine_u8(vld1_u8(x[2 * p] + i), vld1_u8(x[2 * p + 1] + i));
        step(bytes, true);
        left -= 2, i += 8;
      }
      if (left == 0) continue;
      uint8x16_t bytes[kPairs];
      AOTPACK_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        uint32_t fours[4] = {};
        std::memcpy(fours, x[2 * p] + i, sizeof *fours);
        std::memcpy(fours + 2, x[2 * p + 1] + i, sizeof *fours);
        bytes[p] = load_vector<uint8x16_t>(fours);
      }
      step(bytes, false);
    }
    if constexpr (kColumns == Int8Columns::kept) kept += int8_matrix_bytes(t.outer, t.steps) / 2;
    AOTPACK_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      int32_t* to = sums + 2 * p * kPanel + column;
      AOTPACK_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        vst1q_s32(to + v * kLanes, lower_halves(sum[p][2 * v], sum[p][2 * v + 1]));
        if (2 * p + 1 == rows) continue;
        vst1q_s32(to + kPanel + v * kLanes, upper_halves(sum[p][2 * v], sum[p][2 * v + 1]));
      }
    }
  }
}

// The same for up to six of them.
template <Int8Columns kColumns, bool kUnsigned = true>
void int8_matrix_rows(const Int8TileArgs& t, const uint8_t* const* windows, int rows, int8_t* kept, int32_t* sums) {
  const auto tile = rows <= 2   ? int8_matrix_tile<1, kColumns, kUnsigned>
                    : rows <= 4 ? int8_matrix_tile<2, kColumns, kUnsigned>
                                : int8_matrix_tile<3, kColumns, kUnsigned>;
  tile(t, windows, rows, kept, sums);
}

#else

inline constexpr bool kInt8Matrix = false;
inline int64_t int8_matrix_bytes(int64_t, int64_t) { return 0; }

#endif

}  // namespace aotpack::kernels
