// Tiles of products of bf16 with sums in float, by the processor's instructions for them: AMX's tiles, dot products of
// pairs of AVX-512, or NEON's products of 2 x 4 by 4 x 2. Where the target has none of them, bf16 is widened and
// multiplied as float (micro.h).
//
// The instructions round the same products and sums as a float multiply-add would, but in an order of their own, and
// take numbers below the normal range for zero.
#pragma once

#include "element_types.h"

namespace aotpack::kernels {

// Rows of the largest tile; 0: the target has no such instructions, or the module no bf16. And the steps of k that
// rows and panels are padded to.
#if defined(__AMX_BF16__)
inline constexpr int kBf16Rows = kHasBf16 ? 32 : 0, kBf16Step = 32;
#elif defined(__AVX512BF16__)
inline constexpr int kBf16Rows = kHasBf16 ? 14 : 0, kBf16Step = 2;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
inline constexpr int kBf16Rows = kHasBf16 ? 6 : 0, kBf16Step = 4;
#else
inline constexpr int kBf16Rows = 0, kBf16Step = 1;
#endif
// The same for arithmetic that is compiled without them, too.
inline constexpr int64_t kBf16Tile = kBf16Rows > 0 ? kBf16Rows : 1;

// Whether they are used on this processor: AMX's tiles with the operating system's leave (amx.h). And Intel's
// processors take four times as long for a dot product of pairs as for a multiply-add of floats.
bool bf16_works();

// Operations in a microsecond, about, to judge how many threads they deserve.
inline constexpr double kBf16Speed = kBf16Rows > 16 ? 1200e3 : 300e3;

// Elements of a column that lie side by side in a paired panel, [padded k / kBf16Run][32][kBf16Run], and what k is
// padded to in it.
inline constexpr int64_t kBf16Run = kBf16Step == 4 ? 4 : 2;
inline constexpr int64_t bf16_padded(int64_t k) { return round_up(k, kBf16Step); }

// Pairs up the rows of a panel, or brings four of them together (kBf16Run): k of them, `stride` apart, of `columns` <=
// 32. The padding is zero.
void bf16_pair_panel(const bf16* panel, int64_t stride, int64_t columns, int64_t k, bf16* paired);

// The same for a panel of 32 columns, k rows one after the other, in an order that takes fewer instructions: what is
// multiplied with it are columns 0, 2, ..., 30, 1, 3, ..., 31 (bf16_epilogue.h).
void bf16_split_panel(const bf16* panel, int64_t k, bf16* paired);

// The epilogue of a whole panel whose columns are split (bf16_split_panel): y[r * y_stride + j] = clamp(sum[r][j] +
// residual[r * residual_stride + j]), rounded to bf16; residual may be null, and it may be y.
struct Bf16Finish {
  const bf16* residual;
  int64_t residual_stride;
  bool clamp;
  float low, high;
  bf16* y;
  int64_t y_stride;
};

// sums[r * sums_stride + j] = init[r * init_stride + j] + sum over i < k of rows[r * stride + i] * b[i][j] for r <
// count and j < 32. k is a multiple of kBf16Step; init may be sums, init_stride 0 repeats one row.
struct Bf16Args {
  const bf16* rows;
  int64_t stride, k;
  const bf16* paired;
  const float* init;
  int64_t init_stride;
  float* sums;
  int64_t sums_stride;
  // What is read next, or null: every step asks memory for kBf16Ahead elements of it.
  const bf16* ahead;
  // Only where kBf16Fuses. The second half of the rows lies so many elements further.
  int64_t gap;
  // Only where kBf16Fuses, or null. If set, the product is the sum of so many of k elements each, whose rows lie
  // offsets[s] behind `rows` and whose panels follow one another.
  const int64_t* offsets;
  int64_t segments;
  // Only where kBf16Fuses, or null. If set, the epilogue is applied in registers and `sums` is not written.
  const Bf16Finish* finish;
  // Only where kBf16Fuses, or null. If set, `paired` is not read: the operand is these k rows of 32 columns, which are
  // also written to `paired_to` as by bf16_split_panel.
  const bf16* panel;
  bf16* paired_to;
};
// Whether a product can pair its panel and apply the epilogue, which costs little beside its dot products.
#if defined(__AVX512BF16__)
inline constexpr bool kBf16Fuses = kBf16Rows > 0 && kBf16Rows <= 16;
#else
inline constexpr bool kBf16Fuses = false;
#endif
inline constexpr int64_t kBf16Ahead = kBf16Step > 2 ? 8 * kPanel : kPanel;

// Between its construction and its end the thread may call bf16_product.
class Bf16Unit {
 public:
  Bf16Unit() = default;
  ~Bf16Unit();
  Bf16Unit(const Bf16Unit&) = delete;
  Bf16Unit& operator=(const Bf16Unit&) = delete;
  // count in [1, kBf16Rows].
  void multiply(int count, const Bf16Args& args);

 private:
  [[maybe_unused]] int count_ = 0;  // that the tiles are configured for
};

// Up to so many rows at a time are multiplied with a panel as it lies in memory, by dot products. From there on AMX's
// tiles are faster, though they cannot. NEON has registers for three.
inline constexpr int kBf16FewRows = kBf16Rows > 16 ? 4 : kBf16Rows == 6 ? 3 : kBf16Rows;

// sums[r][j] = init[j] + sum over i < k of rows[r * stride + i] * panel[i][column of j] for r < count <= kBf16FewRows
// and j < 32, the columns in the order of bf16_split_panel.
void bf16_few_rows(int count, const bf16* rows, int64_t stride, int64_t k, const bf16* panel, const float* init,
                   float* sums);

}  // namespace aotpack::kernels
