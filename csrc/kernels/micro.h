// The register-blocked multiply that linear, gemm, conv, attention and rnn are made of.
#pragma once

#include "simd.h"

namespace aotpack::kernels {

// Rows of the largest tile: rows x (1, 2 or 4 vectors) of accumulators fill the target's register file.
#if defined(__AVX512F__)
inline constexpr int kMaxRows = 14;
#elif defined(__AVX__) || defined(__aarch64__)
inline constexpr int kMaxRows = 6;
#else
inline constexpr int kMaxRows = 5;
#endif

// What is asked of memory ahead of time, a line in each step of the product: the processor drops what is asked for all
// at once. `rows` pieces of `bytes`, `stride` bytes apart.
struct Ahead {
  const char* at;
  int64_t bytes, stride;
  int rows;
};

// Of an operand: from here on it is not in the second-level cache, and worth asking for.
inline constexpr int64_t kAheadBytes = 1 << 20;

// One tile: y[r][j] = clamp(init[r][j] + sum over taps t and i < k of rows[t * row_count + r][i] * b_t[i][j]
// + residual[r][j]) for j < columns <= kPanel. b_t starts b_offsets[t] elements past b (t * k * b_stride where
// b_offsets is null) and its k rows of kPanel columns lie b_stride apart; a whole panel must be readable, as it must be
// of init. init and residual may be null (zero); init_stride 0 repeats one row. y may be init or residual.
struct MicroArgs {
  const float* const* rows;
  int64_t row_step;  // from each row of the only tap to the next, in elements; 0: they lie anywhere
  int64_t taps;
  int64_t k;
  const void* b;
  int64_t b_stride;
  const int64_t* b_offsets;
  int64_t b_ahead;  // what is asked of memory ahead of time, in elements; 0: further down the packed panel
  const float* init;
  int64_t init_stride;
  const float* residual;
  int64_t residual_stride;
  bool clamp;
  float low, high;
  bool stream;  // whole vectors of y go past the caches: they are aligned, and nothing reads them soon
  float* y;
  int64_t y_stride;
  int columns;
  const Ahead* ahead;  // pieces of other tiles, which a tile of few rows leaves out
  int ahead_count;
};

// row_count in [1, kMaxRows].
void micro(DType b_dtype, int row_count, const MicroArgs& args);

// Rows [begin, end) of `total` cut into tiles of at most kMaxRows, as even as can be.
inline int64_t row_tiles(int64_t total) { return ceil_div(total, kMaxRows); }

}  // namespace aotpack::kernels
