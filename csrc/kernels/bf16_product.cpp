#include "bf16_product.h"

#include <array>
#include <limits>
#include <utility>

#include "bf16_copy.h"
#include "bf16_product_neon.h"
#include "bf16_split.h"
#include "simd.h"

#if defined(__AMX_BF16__)
#include "amx.h"
#elif defined(__AVX512BF16__)
#include <cpuid.h>
#endif

namespace aotpack::kernels {

#if defined(__AVX512BF16__)

namespace {

// Elements of a panel that are asked for ahead of time: the hardware stops looking ahead at the end of a page.
constexpr int64_t kAhead = 64 * kPanel;

// Two rows of a panel as pairs, columns 0 to 15 and 16 to 31.
AOTPACK_INLINE Pairs pair(halves even, halves odd) {
  return {__builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10,
                                  42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47),
          __builtin_shufflevector(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25,
                                  57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63)};
}

AOTPACK_INLINE vf dot(vf sum, vf pairs, halves b) {
  return reinterpret_cast<vf>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(pairs),
                                               reinterpret_cast<__m512bh>(b)));
}
// The pair of elements at p, in every lane.
AOTPACK_INLINE vf repeat_pair(const bf16* p) {
  float both;
  std::memcpy(&both, p, sizeof both);
  return vset(both);
}

// Asks for elements [0, kBf16Ahead) in the second-level cache.
AOTPACK_INLINE void ask_ahead(const bf16* p) {
  AOTPACK_UNROLL
  for (int64_t i = 0; i < kBf16Ahead; i += kPanel) __builtin_prefetch(p + i, 0, 2);
}

template <int kRows>
void few_rows(const bf16* rows, int64_t stride, int64_t k, const bf16* panel, const float* init, float* sums) {
  // Two sums side by side where one per element would wait for itself.
  constexpr int kChains = kRows <= 4 ? 2 : 1;
  vf low[kChains][kRows] = {}, high[kChains][kRows] = {};
  int64_t i = 0;
  const auto step = [&](int chain, halves even, halves odd, const bf16* a, int64_t a_stride)
                        __attribute__((always_inline)) {
                          const Pairs b = split(even, odd);
                          AOTPACK_UNROLL
                          for (int r = 0; r < kRows; ++r) {
                            const vf both = repeat_pair(a + r * a_stride);
                            low[chain][r] = dot(low[chain][r], both, b.low);
                            high[chain][r] = dot(high[chain][r], both, b.high);
                          }
                        };
  for (; i + 4 <= k; i += 4, panel += 4 * kPanel) {
    AOTPACK_UNROLL
    for (int c = 0; c < 4; ++c) __builtin_prefetch(panel + kAhead + c * kPanel);
    AOTPACK_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      step(pair % kChains, load_halves(panel + 2 * pair * kPanel), load_halves(panel + (2 * pair + 1) * kPanel),
           rows + i + 2 * pair, stride);
    }
  }
  for (; i < k; i += 2, panel += 2 * kPanel) {
    bf16 a[kRows][2] = {};
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      a[r][0] = rows[r * stride + i];
      if (i + 1 < k) a[r][1] = rows[r * stride + i + 1];
    }
    step(0, load_halves(panel), i + 1 < k ? load_halves(panel + kPanel) : halves{}, a[0], 2);
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    vf l = low[0][r], h = high[0][r];
    if constexpr (kChains > 1) {
      l += low[1][r];
      h += high[1][r];
    }
    store(sums + r * kPanel, l + load(init));
    store(sums + r * kPanel + kWidth, h + load(init + kWidth));
  }
}

template <int... kRow>
constexpr std::array<decltype(&few_rows<1>), sizeof...(kRow)> few_row_kernels(std::integer_sequence<int, kRow...>) {
  return {few_rows<kRow + 1>...};
}

#if defined(__AMX_BF16__)

template <bool both>
void multiply_tiles(const Bf16Args& g) {
  constexpr int64_t kBytes = 2;
  const int64_t a_stride = g.stride * kBytes, b_stride = 2 * kPanel * kBytes;
  const int64_t init_stride = g.init_stride * 4, sums_stride = g.sums_stride * 4;
  const float* later = g.init + 16 * g.init_stride;
  order_memory();
  _tile_loadd(0, g.init, init_stride);
  _tile_loadd(1, g.init + 16, init_stride);
  if constexpr (both) {
    _tile_loadd(2, later, init_stride);
    _tile_loadd(3, later + 16, init_stride);
  }
  const bf16 *a = g.rows, *b = g.paired, *ahead = g.ahead;
  for (int64_t i = 0; i < g.k; i += kBf16Step, a += kBf16Step, b += kBf16Step * kPanel) {
    if (ahead != nullptr) {
      ask_ahead(ahead);
      ahead += kBf16Ahead;
    }
    _tile_loadd(4, b, b_stride);
    _tile_loadd(6, a, a_stride);
    _tile_loadd(5, b + kPanel, b_stride);
    _tile_dpbf16ps(0, 6, 4);
    if constexpr (both) _tile_loadd(7, a + 16 * g.stride, a_stride);
    _tile_dpbf16ps(1, 6, 5);
    if constexpr (both) {
      _tile_dpbf16ps(2, 7, 4);
      _tile_dpbf16ps(3, 7, 5);
    }
  }
  _tile_stored(0, g.sums, sums_stride);
  _tile_stored(1, g.sums + 16, sums_stride);
  if constexpr (both) {
    _tile_stored(2, g.sums + 16 * g.sums_stride, sums_stride);
    _tile_stored(3, g.sums + 16 * g.sums_stride + 16, sums_stride);
  }
  order_memory();
}

#else

// sums[r]: the even and the odd columns of row r.
template <int kRows>
AOTPACK_INLINE void finish_rows(const Bf16Finish& f, vf (&sums)[kRows][2]) {
  if (f.residual != nullptr) {
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Split more = load_split(kPanel, f.residual + r * f.residual_stride);
      sums[r][0] += more.even;
      sums[r][1] += more.odd;
    }
  }
  if (f.clamp) {
    const vf low = vset(f.low), high = vset(f.high);
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < 2; ++v) sums[r][v] = at_least(sums[r][v], low);
    }
    if (f.high < std::numeric_limits<float>::infinity()) {
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        AOTPACK_UNROLL
        for (int v = 0; v < 2; ++v) sums[r][v] = at_most(sums[r][v], high);
      }
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) store_split(kPanel, f.y + r * f.y_stride, {sums[r][0], sums[r][1]});
}

template <int kRows, bool kPairs>
void multiply_rows(const Bf16Args& g) {
  vf sums[kRows][2];
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2; ++v) sums[r][v] = load(g.init + r * g.init_stride + v * kWidth);
  }
  constexpr int kHalf = kRows / 2;
  const int64_t stride = g.stride, high = kHalf * stride + g.gap;
  const bf16 *a = g.rows, *b = kPairs ? g.panel : g.paired, *ahead = g.ahead != nullptr ? g.ahead : b;
  if (g.offsets != nullptr) a += g.offsets[0];
  const bf16* a_high = a + high;
  bf16* to = g.paired_to;
  const auto step = [&]() __attribute__((always_inline)) {
    ask_ahead(ahead);
    Pairs pairs = {load_halves(b), load_halves(b + kPanel)};
    if constexpr (kPairs) {
      __builtin_prefetch(b + kAhead);
      __builtin_prefetch(b + kAhead + kPanel);
      pairs = split(pairs.low, pairs.high);
      store_halves(to, pairs.low);
      store_halves(to + kPanel, pairs.high);
      to += 2 * kPanel;
    }
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const vf both = repeat_pair(r < kHalf ? a + r * stride : a_high + (r - kHalf) * stride);
      sums[r][0] = dot(sums[r][0], both, pairs.low);
      sums[r][1] = dot(sums[r][1], both, pairs.high);
    }
    a += 2, a_high += 2, b += 2 * kPanel, ahead += kBf16Ahead;
  };
  int64_t steps = g.k / 2;
  if (g.finish != nullptr) {
    // The epilogue needs these lines at the end of the loop: one row is prefetched in each step.
    const Bf16Finish& f = *g.finish;
    const bf16 *residual = f.residual != nullptr ? f.residual : f.y, *y = f.y;
    for (int64_t r = min64(steps, kRows); r > 0; --r, --steps) {
      __builtin_prefetch(residual);
      __builtin_prefetch(y);
      residual += f.residual_stride, y += f.y_stride;
      step();
    }
  }
  for (; steps > 0; --steps) step();
  for (int64_t s = 1; s < g.segments; ++s) {
    a = g.rows + g.offsets[s];
    a_high = a + high;
    for (steps = g.k / 2; steps > 0; --steps) step();
  }
  if (g.finish != nullptr) return finish_rows<kRows>(*g.finish, sums);
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2; ++v) store(g.sums + r * g.sums_stride + v * kWidth, sums[r][v]);
  }
}

template <bool kPairs, int... kRow>
constexpr std::array<void (*)(const Bf16Args&), sizeof...(kRow)> row_kernels(std::integer_sequence<int, kRow...>) {
  return {multiply_rows<kRow + 1, kPairs>...};
}

#endif

}  // namespace

void bf16_pair_panel(const bf16* panel, int64_t stride, int64_t columns, int64_t k, bf16* paired) {
  const int64_t padded = bf16_padded(k);
  const __mmask32 some = first_elements(columns);
  const auto row = [&](int64_t i) {
    return i < k ? reinterpret_cast<halves>(_mm512_maskz_loadu_epi16(some, panel + i * stride)) : halves{};
  };
  for (int64_t i = 0; i < padded; i += 2) {
    const halves even = row(i), odd = row(i + 1);
    const Pairs pairs = pair(even, odd);
    store_halves(paired + i * kPanel, pairs.low);
    store_halves(paired + (i + 1) * kPanel, pairs.high);
  }
}

void bf16_split_panel(const bf16* panel, int64_t k, bf16* paired) {
  const int64_t padded = bf16_padded(k);
  const auto put = [&](int64_t i, halves even, halves odd) __attribute__((always_inline)) {
    const Pairs pairs = split(even, odd);
    store_halves(paired + i * kPanel, pairs.low);
    store_halves(paired + (i + 1) * kPanel, pairs.high);
  };
  int64_t i = 0;
  for (; i + 2 <= k; i += 2) {
    __builtin_prefetch(panel + i * kPanel + kAhead);
    __builtin_prefetch(panel + (i + 1) * kPanel + kAhead);
    put(i, load_halves(panel + i * kPanel), load_halves(panel + (i + 1) * kPanel));
  }
  for (; i < padded; i += 2) put(i, i < k ? load_halves(panel + i * kPanel) : halves{}, halves{});
}

void bf16_few_rows(int count, const bf16* rows, int64_t stride, int64_t k, const bf16* panel, const float* init,
                   float* sums) {
  static constexpr auto kKernels = few_row_kernels(std::make_integer_sequence<int, kBf16FewRows>());
  kKernels[static_cast<size_t>(count - 1)](rows, stride, k, panel, init, sums);
}

#if defined(__AMX_BF16__)

bool bf16_works() { return amx_allowed(); }

Bf16Unit::~Bf16Unit() {
  // The system then has no tiles to save when it switches threads.
  if (count_ != 0) _tile_release();
}

void Bf16Unit::multiply(int count, const Bf16Args& args) {
  if (count != count_) amx_configure(count_ = count);
  if (count > 16) {
    multiply_tiles<true>(args);
  } else {
    multiply_tiles<false>(args);
  }
}

#else

bool bf16_works() {
  static const bool works = [] {
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_INTEL_ebx;
  }();
  return works;
}

Bf16Unit::~Bf16Unit() = default;

void Bf16Unit::multiply(int count, const Bf16Args& args) {
  static constexpr auto kPaired = row_kernels<false>(std::make_integer_sequence<int, kBf16Rows>());
  static constexpr auto kPairs = row_kernels<true>(std::make_integer_sequence<int, kBf16Rows>());
  (args.panel != nullptr ? kPairs : kPaired)[static_cast<size_t>(count - 1)](args);
}

#endif

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

bool bf16_works() { return true; }

void bf16_pair_panel(const bf16* panel, int64_t stride, int64_t columns, int64_t k, bf16* paired) {
  neon_bf16::pair_panel(panel, stride, columns, k, paired);
}

void bf16_split_panel(const bf16* panel, int64_t k, bf16* paired) { neon_bf16::split_panel(panel, k, paired); }

void bf16_few_rows(int count, const bf16* rows, int64_t stride, int64_t k, const bf16* panel, const float* init,
                   float* sums) {
  static constexpr auto kKernels = neon_bf16::few_row_kernels(std::make_integer_sequence<int, kBf16FewRows>());
  kKernels[static_cast<size_t>(count - 1)](rows, stride, k, panel, init, sums);
}

Bf16Unit::~Bf16Unit() = default;

void Bf16Unit::multiply(int count, const Bf16Args& args) {
  static constexpr auto kKernels = neon_bf16::row_kernels(std::make_integer_sequence<int, kBf16Rows>());
  kKernels[static_cast<size_t>(count - 1)](args);
}

#else

bool bf16_works() { return false; }
// Never called: kBf16Rows is 0.
void bf16_pair_panel(const bf16*, int64_t, int64_t, int64_t, bf16*) {}
void bf16_split_panel(const bf16*, int64_t, bf16*) {}
void bf16_few_rows(int, const bf16*, int64_t, int64_t, const bf16*, const float*, float*) {}
Bf16Unit::~Bf16Unit() = default;
void Bf16Unit::multiply(int, const Bf16Args&) {}

#endif

}  // namespace aotpack::kernels
