// Both operands are widened to 16 bits, in pairs along k: a multiply-add of pairs into 32 bits is exact for any int8
// (products of unsigned with signed bytes would saturate, or ask for a correction). Rows of a are widened once; a
// thread packs the panels of b that are its own, 32 columns at a time, and goes over all rows with each. ARM's matrix
// instructions multiply bytes instead (gemm_int8_matrix.h).
#include "gemm_int8.h"

#include <array>
#include <utility>

#include "gemm_int8_matrix.h"
#include "parallel.h"
#include "simd.h"

#if defined(__AVX512BW__)
#include <cpuid.h>
#endif

namespace aotpack::kernels {

#if !defined(__ARM_FEATURE_MATMUL_INT8)

namespace {

constexpr int64_t kFewRows = 24;  // b is not packed for so few when it lies along k

#if defined(__AVX512BW__)
constexpr int kLanes = 16, kRows = 12;
using lanes = __m512i;
AOTPACK_INLINE lanes pair(const int16_t* p) {
  int32_t both;
  std::memcpy(&both, p, sizeof both);
  return _mm512_set1_epi32(both);
}
AOTPACK_INLINE lanes columns_at(const int16_t* p) { return _mm512_loadu_si512(p); }
AOTPACK_INLINE lanes zero() { return _mm512_setzero_si512(); }
template <bool fused>
AOTPACK_INLINE lanes multiply_add(lanes sum, lanes a, lanes b) {
  if constexpr (fused) {
    // Not through an intrinsic: the target at large does not have it, the processor was asked.
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  } else {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
  }
}
AOTPACK_INLINE void store_lanes(int32_t* p, lanes x) { _mm512_storeu_si512(p, x); }
AOTPACK_INLINE lanes widened(const int8_t* p) {  // 32 of them
  return _mm512_maskz_cvtepi8_epi16(0xffffffffu, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRows = 3;
using lanes = __m256i;
AOTPACK_INLINE lanes pair(const int16_t* p) {
  int32_t both;
  std::memcpy(&both, p, sizeof both);
  return _mm256_set1_epi32(both);
}
AOTPACK_INLINE lanes columns_at(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
AOTPACK_INLINE lanes zero() { return _mm256_setzero_si256(); }
template <bool fused>
AOTPACK_INLINE lanes multiply_add(lanes sum, lanes a, lanes b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
AOTPACK_INLINE void store_lanes(int32_t* p, lanes x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
AOTPACK_INLINE lanes widened(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
// The compiler's vectors.
constexpr int kLanes = 4, kRows = 4;
using lanes = uint32_t __attribute__((vector_size(16)));
using lanes16 = int16_t __attribute__((vector_size(16)));
AOTPACK_INLINE lanes pair(const int16_t* p) {
  uint32_t both;
  std::memcpy(&both, p, sizeof both);
  return both - lanes{};
}
AOTPACK_INLINE lanes columns_at(const int16_t* p) {
  lanes x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
AOTPACK_INLINE lanes zero() { return lanes{}; }
template <bool fused>
AOTPACK_INLINE lanes multiply_add(lanes sum, lanes a, lanes b) {
  using signed32 = int32_t __attribute__((vector_size(16)));
  const auto low = [](lanes x) { return (reinterpret_cast<signed32>(x << 16)) >> 16; };
  const auto high = [](lanes x) { return reinterpret_cast<signed32>(x) >> 16; };
  return sum + reinterpret_cast<lanes>(low(a) * low(b) + high(a) * high(b));
}
AOTPACK_INLINE void store_lanes(int32_t* p, lanes x) { std::memcpy(p, &x, sizeof x); }
AOTPACK_INLINE lanes widened(const int8_t* p) {
  lanes16 wide = {};
  for (int i = 0; i < 8; ++i) wide[i] = p[i];
  return reinterpret_cast<lanes>(wide);
}
#endif

AOTPACK_INLINE uint32_t sum_lanes(lanes x) {
  int32_t each[kLanes];
  store_lanes(each, x);
  uint32_t sum = 0;
  for (int32_t value : each) sum += static_cast<uint32_t>(value);
  return sum;
}

constexpr int kVectors = static_cast<int>(kPanel) / kLanes;  // of a panel
constexpr int kAtOnce = kVectors < 4 ? kVectors : 4;

bool ask_processor() {
#if defined(__AVX512BW__)
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & (1u << 11)) != 0;  // AVX512_VNNI
#else
  return false;
#endif
}
// Asked once: virtual machines take microseconds to answer.
bool has_fused() {
  static const bool fused = ask_processor();
  return fused;
}

// y[r][c] for rows x kPanel; a: rows of `pairs` pairs, `a_stride` elements apart; b: [pairs][kPanel][2].
template <bool fused, int rows>
void tile(const int16_t* a, int64_t a_stride, const int16_t* b, int64_t pairs, int32_t* y) {
  for (int first = 0; first < kVectors; first += kAtOnce) {
    lanes sums[rows][kAtOnce];
    AOTPACK_UNROLL
    for (int r = 0; r < rows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kAtOnce; ++v) sums[r][v] = zero();
    }
    const int16_t* column = b + first * kLanes * 2;
    for (int64_t i = 0; i < pairs; ++i, column += kPanel * 2) {
      lanes x[kAtOnce];
      AOTPACK_UNROLL
      for (int v = 0; v < kAtOnce; ++v) x[v] = columns_at(column + v * kLanes * 2);
      AOTPACK_UNROLL
      for (int r = 0; r < rows; ++r) {
        const lanes both = pair(a + r * a_stride + i * 2);
        AOTPACK_UNROLL
        for (int v = 0; v < kAtOnce; ++v) sums[r][v] = multiply_add<fused>(sums[r][v], both, x[v]);
      }
    }
    AOTPACK_UNROLL
    for (int r = 0; r < rows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kAtOnce; ++v) store_lanes(y + r * kPanel + (first + v) * kLanes, sums[r][v]);
    }
  }
}

using Tile = void (*)(const int16_t*, int64_t, const int16_t*, int64_t, int32_t*);
template <bool fused, int... row>
constexpr std::array<Tile, sizeof...(row)> tiles(std::integer_sequence<int, row...>) {
  return {tile<fused, row + 1>...};
}

int64_t pairs_of(const Int8GemmArgs& g) { return ceil_div(g.k, 2); }
// Of a widened row, with what a vector may read beyond it.
int64_t row_stride(const Int8GemmArgs& g) { return round_up(g.k, 64); }
bool takes_dots(const Int8GemmArgs& g) { return g.m <= kFewRows && (g.b_row == 1 || g.k == 1); }

struct Buffers {
  int16_t* rows;
  int16_t* panels;  // one for each thread
  size_t bytes;
};
Buffers carve(const Int8GemmArgs& g, void* scratch) {
  Scratch from(scratch);
  Buffers b;
  b.rows = from.take<int16_t>(g.m * row_stride(g));
  b.panels = from.take<int16_t>(takes_dots(g) ? 0 : max64(g.num_threads, 1) * pairs_of(g) * kPanel * 2);
  b.bytes = from.bytes();
  return b;
}

void widen_row(const Int8GemmArgs& g, int64_t row, int16_t* to) {
  const int8_t* from = g.a + row * g.a_row;
  if (g.a_unsigned) {
    for (int64_t i = 0; i < g.k; ++i) to[i] = static_cast<uint8_t>(from[i * g.a_col]);
  } else {
    for (int64_t i = 0; i < g.k; ++i) to[i] = from[i * g.a_col];
  }
  for (int64_t i = g.k; i < row_stride(g); ++i) to[i] = 0;
}

void pack_panel(const Int8GemmArgs& g, int64_t first, int64_t columns, int16_t* to) {
  const int64_t pairs = pairs_of(g);
  if (columns < kPanel || g.k % 2 != 0) std::memset(to, 0, static_cast<size_t>(pairs * kPanel * 2) * sizeof(int16_t));
  const int8_t* from = g.b + first * g.b_col;
  if (g.b_row == 1) {
    for (int64_t j = 0; j < columns; ++j) {
      const int8_t* column = from + j * g.b_col;
      for (int64_t i = 0; i + 1 < g.k; i += 2) {
        const int16_t both[2] = {column[i], column[i + 1]};
        std::memcpy(to + i * kPanel + j * 2, both, sizeof both);
      }
      if (g.k % 2 != 0) to[(g.k - 1) * kPanel + j * 2] = column[g.k - 1];
    }
    return;
  }
  if (g.b_col == 1 && columns == kPanel) {
    for (int64_t i = 0; i + 1 < g.k; i += 2) {
      const int8_t *first_row = from + i * g.b_row, *second_row = first_row + g.b_row;
      int32_t both[kPanel];
      for (int64_t j = 0; j < kPanel; ++j) both[j] = (first_row[j] & 0xffff) | (second_row[j] * 0x10000);
      std::memcpy(to + i * kPanel, both, sizeof both);
    }
    const int8_t* last = from + (g.k - 1) * g.b_row;
    for (int64_t j = 0; j < kPanel && g.k % 2 != 0; ++j) to[(g.k - 1) * kPanel + j * 2] = last[j];
    return;
  }
  for (int64_t i = 0; i < g.k; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      to[i / 2 * 2 * kPanel + j * 2 + i % 2] = from[i * g.b_row + j * g.b_col];
    }
  }
}

// rows x columns dot products, `a` widened rows, `b` columns that lie along k.
template <bool fused, int rows, int columns>
void dot_tile(const Int8GemmArgs& g, const int16_t* a, const int8_t* b, int32_t* y) {
  constexpr int64_t kStep = 2 * kLanes;
  lanes sums[rows][columns];
  AOTPACK_UNROLL
  for (int r = 0; r < rows; ++r) {
    AOTPACK_UNROLL
    for (int c = 0; c < columns; ++c) sums[r][c] = zero();
  }
  int64_t i = 0;
  for (; i + kStep <= g.k; i += kStep) {
    lanes x[columns];
    AOTPACK_UNROLL
    for (int c = 0; c < columns; ++c) x[c] = widened(b + c * g.b_col + i);
    AOTPACK_UNROLL
    for (int r = 0; r < rows; ++r) {
      const lanes row = columns_at(a + r * row_stride(g) + i);
      AOTPACK_UNROLL
      for (int c = 0; c < columns; ++c) sums[r][c] = multiply_add<fused>(sums[r][c], row, x[c]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      uint32_t sum = sum_lanes(sums[r][c]);
      for (int64_t rest = i; rest < g.k; ++rest) {
        sum += static_cast<uint32_t>(a[r * row_stride(g) + rest] * b[c * g.b_col + rest]);
      }
      y[r * g.y_row + c * g.y_col] = static_cast<int32_t>(sum);
    }
  }
}

template <bool fused>
void dot_columns(const Int8GemmArgs& g, const int16_t* rows, Range columns) {
  constexpr int kTile = 4;
  for (int64_t j = columns.begin; j < columns.end;) {
    const bool several = j + kTile <= columns.end;
    const int8_t* b = g.b + j * g.b_col;
    for (int64_t r = 0; r < g.m;) {
      const bool whole = several && r + kTile <= g.m;
      const int16_t* a = rows + r * row_stride(g);
      int32_t* y = g.y + r * g.y_row + j * g.y_col;
      (whole ? dot_tile<fused, kTile, kTile> : several ? dot_tile<fused, 1, kTile> : dot_tile<fused, 1, 1>)(g, a, b, y);
      r += whole ? kTile : 1;
    }
    j += several ? kTile : 1;
  }
}

template <bool fused>
void panel_columns(const Int8GemmArgs& g, const Buffers& buffers, int thread, Range panels) {
  static constexpr auto kTiles = tiles<fused>(std::make_integer_sequence<int, kRows>());
  const int64_t pairs = pairs_of(g);
  int16_t* packed = buffers.panels + thread * pairs * kPanel * 2;
  alignas(64) int32_t sums[kRows * kPanel];
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t columns = min64(kPanel, g.n - panel * kPanel);
    pack_panel(g, panel * kPanel, columns, packed);
    for (int64_t row = 0; row < g.m; row += kRows) {
      const int64_t rows = min64(kRows, g.m - row);
      kTiles[static_cast<size_t>(rows - 1)](buffers.rows + row * row_stride(g), row_stride(g), packed, pairs, sums);
      for (int64_t r = 0; r < rows; ++r) {
        int32_t* y = g.y + (row + r) * g.y_row + panel * kPanel * g.y_col;
        for (int64_t j = 0; j < columns; ++j) y[j * g.y_col] = sums[r * kPanel + j];
      }
    }
  }
}

template <bool fused>
void run(const Int8GemmArgs& g) {
  const Buffers buffers = carve(g, g.scratch);
  const double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(max64(g.k, 1));
  const double bytes = static_cast<double>(g.k) * static_cast<double>(g.n + g.m);
  parallel(worth_threads(work / 100e3 + bytes / 4e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.m, thread, threads);
    for (int64_t row = mine.begin; row < mine.end; ++row) widen_row(g, row, buffers.rows + row * row_stride(g));
    team_barrier(threads);
    if (takes_dots(g)) {
      dot_columns<fused>(g, buffers.rows, share(g.n, thread, threads));
    } else {
      panel_columns<fused>(g, buffers, thread, share(ceil_div(g.n, kPanel), thread, threads));
    }
  });
}

}  // namespace

#endif

size_t gemm_int8_scratch_bytes(const Int8GemmArgs& args) {
  void* const anywhere = reinterpret_cast<void*>(uintptr_t{64});
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return int8_matrix::carve(args, anywhere).bytes;
#else
  return carve(args, anywhere).bytes;
#endif
}

void gemm_int8(const Int8GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  if (args.k <= 0) {  // operands without elements may have no address
    for (int64_t i = 0; i < args.m; ++i) {
      for (int64_t j = 0; j < args.n; ++j) args.y[i * args.y_row + j * args.y_col] = 0;
    }
    return;
  }
#if defined(__ARM_FEATURE_MATMUL_INT8)
  int8_matrix::run(args);
#else
  has_fused() ? run<true>(args) : run<false>(args);
#endif
}

}  // namespace aotpack::kernels
