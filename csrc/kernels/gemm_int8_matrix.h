// gemm_int8 by ARM's products of 2 x 8 by 8 x 2 bytes (SMMLA, USMMLA): a thread packs a panel of 32 columns of b and
// multiplies all rows with it, in pairs.
#pragma once

#include "conv_int8_matrix.h"
#include "gemm_int8.h"
#include "parallel.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)

namespace aotpack::kernels::int8_matrix {

constexpr int64_t kRows = 6;

struct Buffers {
  int8_t* rows;    // of a, where they cannot be read where they lie
  int8_t* panels;  // one for each thread
  int64_t row_stride, panel_bytes;
  size_t bytes;
};
inline Buffers carve(const Int8GemmArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.row_stride = round_up(g.k, 16);
  b.panel_bytes = int8_matrix_bytes(1, ceil_div(g.k, 4));
  // Fours of bytes are read.
  const bool in_place = g.a_col == 1 && g.k % 4 == 0;
  b.rows = in_place ? nullptr : from.take<int8_t>(g.m * b.row_stride);
  b.panels = from.take<int8_t>(b.panel_bytes * max64(g.num_threads, 1));
  b.bytes = from.bytes();
  return b;
}

inline void copy_row(const Int8GemmArgs& g, const Buffers& b, int64_t row) {
  const int8_t* from = g.a + row * g.a_row;
  int8_t* to = b.rows + row * b.row_stride;
  for (int64_t i = 0; i < g.k; ++i) to[i] = from[i * g.a_col];
  std::memset(to + g.k, 0, static_cast<size_t>(b.row_stride - g.k));
}

// Eight rows of 16 columns: [16 columns][8].
AOTPACK_INLINE void transpose(const int8_t* from, int64_t stride, int8_t* to) {
  uint8x16_t rows[8], pairs[8];
  AOTPACK_UNROLL
  for (int i = 0; i < 8; ++i) rows[i] = detail::load_vector<uint8x16_t>(from + i * stride);
  AOTPACK_UNROLL
  for (int i = 0; i < 4; ++i) {
    pairs[i] = vzip1q_u8(rows[2 * i], rows[2 * i + 1]);
    pairs[i + 4] = vzip2q_u8(rows[2 * i], rows[2 * i + 1]);
  }
  AOTPACK_UNROLL
  for (int i = 0; i < 4; ++i) {  // four columns
    const auto half = [&](int pair)
                          __attribute__((always_inline)) { return vreinterpretq_u16_u8(pairs[i / 2 * 4 + pair]); };
    const auto fours = [&](int pair) __attribute__((always_inline)) {
      return vreinterpretq_u32_u16(i % 2 == 0 ? vzip1q_u16(half(pair), half(pair + 1))
                                              : vzip2q_u16(half(pair), half(pair + 1)));
    };
    const uint32x4_t upper = fours(0), lower = fours(2);
    vst1q_u8(reinterpret_cast<uint8_t*>(to) + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(upper, lower)));
    vst1q_u8(reinterpret_cast<uint8_t*>(to) + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(upper, lower)));
  }
}

// Columns [first, first + columns) of b: [2][padded k / 8][16 columns][8].
inline void pack_panel(const Int8GemmArgs& g, int64_t first, int64_t columns, int64_t panel_bytes, int8_t* to) {
  const int8_t* from = g.b + first * g.b_col;
  for (int64_t half = 0; half < 2; ++half, to += panel_bytes / 2, from += 16 * g.b_col, columns -= 16) {
    const int64_t some = min64(16, max64(columns, 0));
    int8_t* at = to;
    for (int64_t i = 0; i < g.k; i += 8, at += 128) {
      const int64_t depth = min64(8, g.k - i);
      const int8_t* rows = from + i * g.b_row;
      if (depth == 8 && some == 16 && g.b_col == 1) {
        transpose(rows, g.b_row, at);
        continue;
      }
      if (depth < 8 || some < 16) std::memset(at, 0, 128);
      if (depth == 8 && g.b_row == 1) {
        for (int64_t j = 0; j < some; ++j) std::memcpy(at + 8 * j, rows + j * g.b_col, 8);
        continue;
      }
      for (int64_t j = 0; j < some; ++j) {
        for (int64_t d = 0; d < depth; ++d) at[8 * j + d] = rows[d * g.b_row + j * g.b_col];
      }
    }
  }
}

template <bool kUnsigned>
void columns(const Int8GemmArgs& g, const Buffers& b, int thread, Range panels) {
  static constexpr int32_t kZeros[kPanel] = {};
  static constexpr int64_t kBegin = 0;
  int8_t* const packed = b.panels + thread * b.panel_bytes;
  const Int8TileArgs t{&kBegin, 1, ceil_div(g.k, 4), nullptr, 0, kZeros, nullptr, nullptr, 0};
  const int8_t* const a = b.rows != nullptr ? b.rows : g.a;
  const int64_t stride = b.rows != nullptr ? b.row_stride : g.a_row;
  int32_t sums[kRows * kPanel];
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t some = min64(kPanel, g.n - panel * kPanel);
    pack_panel(g, panel * kPanel, some, b.panel_bytes, packed);
    for (int64_t row = 0; row < g.m; row += kRows) {
      const int rows = static_cast<int>(min64(kRows, g.m - row));
      const uint8_t* windows[kRows];
      for (int r = 0; r < rows; ++r) windows[r] = reinterpret_cast<const uint8_t*>(a + (row + r) * stride);
      int8_matrix_rows<Int8Columns::kept, kUnsigned>(t, windows, rows, packed, sums);
      for (int r = 0; r < rows; ++r) {
        int32_t* y = g.y + (row + r) * g.y_row + panel * kPanel * g.y_col;
        for (int64_t j = 0; j < some; ++j) y[j * g.y_col] = sums[r * kPanel + j];
      }
    }
  }
}

inline void run(const Int8GemmArgs& g) {
  const Buffers b = carve(g, g.scratch);
  const double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const double bytes = static_cast<double>(g.k) * static_cast<double>(g.n + g.m);
  parallel(worth_threads(work / 200e3 + bytes / 4e3, g.num_threads), [&](int thread, int threads) {
    if (b.rows != nullptr) {
      const Range mine = share(g.m, thread, threads);
      for (int64_t row = mine.begin; row < mine.end; ++row) copy_row(g, b, row);
      team_barrier(threads);
    }
    const Range panels = share(ceil_div(g.n, kPanel), thread, threads);
    g.a_unsigned ? columns<true>(g, b, thread, panels) : columns<false>(g, b, thread, panels);
  });
}

}  // namespace aotpack::kernels::int8_matrix

#endif
