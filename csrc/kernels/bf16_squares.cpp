#include "bf16_squares.h"

#include <utility>

#include "bf16_copy.h"
#include "bf16_product.h"
#include "simd.h"

namespace aotpack::kernels {

#if defined(__AVX512BF16__)

namespace {

// The elements of two vectors that a step of a transposition puts side by side: squares of kStep x kStep change places.
template <int kStep, int... kLane>
AOTPACK_INLINE void exchange(vu& a, vu& b, std::integer_sequence<int, kLane...>) {
  const vu first = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? 16 + kLane - kStep : kLane)...);
  b = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? 16 + kLane : kLane + kStep)...);
  a = first;
}

// rows[i][j] and rows[j][i] change places.
AOTPACK_INLINE void transpose(vu (&rows)[16]) {
  constexpr auto kLanes = std::make_integer_sequence<int, 16>();
  AOTPACK_UNROLL
  for (int i = 0; i < 8; ++i) exchange<8>(rows[i], rows[i + 8], kLanes);
  AOTPACK_UNROLL
  for (int i = 0; i < 16; i += 8) {
    AOTPACK_UNROLL
    for (int j = 0; j < 4; ++j) exchange<4>(rows[i + j], rows[i + j + 4], kLanes);
  }
  AOTPACK_UNROLL
  for (int i = 0; i < 16; i += 4) {
    AOTPACK_UNROLL
    for (int j = 0; j < 2; ++j) exchange<2>(rows[i + j], rows[i + j + 2], kLanes);
  }
  AOTPACK_UNROLL
  for (int i = 0; i < 16; i += 2) exchange<1>(rows[i], rows[i + 1], kLanes);
}

AOTPACK_INLINE vu load_first(int64_t n, const bf16* p) {
  return reinterpret_cast<vu>(_mm512_maskz_loadu_epi16(first_elements(n), p));
}
AOTPACK_INLINE void store_words(bf16* p, vu x) { std::memcpy(p, &x, sizeof x); }

// The first elements of 16, in lanes of 32 bits.
AOTPACK_INLINE vu load_wide(int64_t n, const bf16* p) {
  const auto some = static_cast<__mmask16>(first_elements(n));
  return __builtin_convertvector(reinterpret_cast<vh>(_mm256_maskz_loadu_epi16(some, p)), vu);
}

// k lies side by side: 16 columns of 32 elements at a time are 16 x 16 pairs.
void pair_transposed(const bf16* from, int64_t n_stride, int64_t k, int64_t columns, bf16* paired) {
  for (int64_t i = 0; i < bf16_padded(k); i += 32) {
    const int64_t pairs = min64(16, (bf16_padded(k) - i) / 2);
    for (int64_t half = 0; half < 2; ++half) {
      vu rows[16] = {};
      const int64_t count = min64(16, columns - 16 * half);
      for (int64_t c = 0; c < count; ++c) rows[c] = load_first(k - i, from + (16 * half + c) * n_stride + i);
      transpose(rows);
      for (int64_t p = 0; p < pairs; ++p) store_words(paired + (i / 2 + p) * 2 * kPanel + 2 * 16 * half, rows[p]);
    }
  }
}

// Rows lie side by side: 32 of k by 16 of them at a time are 16 x 16 pairs.
void gather_transposed(const bf16* from, int64_t k_stride, int64_t rows, int64_t k, bf16* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t i = 0; i < k; i += 32) {
      vu pairs[16] = {};
      const int64_t lanes = min64(16, rows - r);
      for (int64_t p = 0; p < min64(16, ceil_div(k - i, 2)); ++p) {
        const int64_t at = i + 2 * p;
        pairs[p] = load_wide(lanes, from + at * k_stride + r);
        if (at + 1 < k) pairs[p] |= load_wide(lanes, from + (at + 1) * k_stride + r) << 16;
      }
      transpose(pairs);
      AOTPACK_UNROLL
      for (int p = 0; p < 16; ++p) store_words(to + (r + p) * to_stride + i, pairs[p]);
    }
  }
}

}  // namespace

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

namespace {

// k lies side by side, as do the elements of a run.
void pair_transposed(const bf16* from, int64_t n_stride, int64_t k, int64_t columns, bf16* paired) {
  int64_t i = 0;
  for (; i + kBf16Run <= k; i += kBf16Run, paired += kBf16Run * kPanel) {
    for (int64_t j = 0; j < columns; ++j) {
      std::memcpy(paired + kBf16Run * j, from + j * n_stride + i, kBf16Run * sizeof(bf16));
    }
    std::memset(paired + kBf16Run * columns, 0, static_cast<size_t>(kBf16Run * (kPanel - columns)) * sizeof(bf16));
  }
  if (i == k) return;
  std::memset(paired, 0, kBf16Run * kPanel * sizeof(bf16));
  for (int64_t j = 0; j < columns; ++j) {
    std::memcpy(paired + kBf16Run * j, from + j * n_stride + i, static_cast<size_t>(k - i) * sizeof(bf16));
  }
}

}  // namespace

#endif

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

void bf16_pair_columns(const bf16* from, int64_t k_stride, int64_t n_stride, int64_t k, int64_t columns, bf16* paired) {
  if (n_stride == 1) return bf16_pair_panel(from, k_stride, columns, k, paired);
  if (k_stride == 1) return pair_transposed(from, n_stride, k, columns, paired);
  const int64_t padded = bf16_padded(k);
  for (int64_t i = 0; i < padded; ++i) {
    bf16* to = paired + i / kBf16Run * kBf16Run * kPanel + i % kBf16Run;
    for (int64_t j = 0; j < kPanel; ++j) {
      to[kBf16Run * j] = i < k && j < columns ? from[i * k_stride + j * n_stride] : bf16{};
    }
  }
}

void bf16_gather_rows(const bf16* from, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, bf16* to,
                      int64_t to_stride) {
#if defined(__AVX512BF16__)
  if (row_stride == 1 && k_stride != 1) return gather_transposed(from, k_stride, rows, k, to, to_stride);
#endif
  for (int64_t r = 0; r < rows; ++r) {
    const bf16* row = from + r * row_stride;
    bf16* copy = to + r * to_stride;
    if (k_stride == 1) {
      copy_vectors(row, k, round_up(k, 32), copy);
      continue;
    }
    for (int64_t i = 0; i < round_up(k, 32); ++i) copy[i] = i < k ? row[i * k_stride] : bf16{};
  }
}

#else

// Never called: kBf16Rows is 0.
void bf16_pair_columns(const bf16*, int64_t, int64_t, int64_t, int64_t, bf16*) {}
void bf16_gather_rows(const bf16*, int64_t, int64_t, int64_t, int64_t, bf16*, int64_t) {}

#endif

}  // namespace aotpack::kernels
