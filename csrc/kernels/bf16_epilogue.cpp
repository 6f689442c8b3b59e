#include "bf16_epilogue.h"

#include "bf16_copy.h"
#include "simd.h"

namespace aotpack::kernels {

#if defined(__AVX512BF16__)

namespace {

// The elements of 32 columns at even and at odd places.
struct Split {
  vf even, odd;
};

AOTPACK_INLINE Split load_split(int64_t columns, const bf16* p) {
  const auto both = reinterpret_cast<vu>(_mm512_maskz_loadu_epi16(first_elements(columns), p));
  return {reinterpret_cast<vf>(both << 16), reinterpret_cast<vf>(both & 0xffff0000u)};
}

// Rounded to the nearest bf16, which are the upper halves. A NaN stays one.
AOTPACK_INLINE vu round_to_upper(vf x) {
  const auto bits = reinterpret_cast<vu>(x);
  const vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return reinterpret_cast<vu>(
      _mm512_mask_or_epi32(reinterpret_cast<__m512i>(rounded),
                           _mm512_cmp_ps_mask(reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(x), _CMP_UNORD_Q),
                           reinterpret_cast<__m512i>(bits), _mm512_set1_epi32(0x400000)));
}

// Elements 0 to 15 at even places, 16 to 31 at odd ones.
constexpr auto kInterleaved = [] {
  struct alignas(64) {
    uint16_t from[32];
  } order{};
  for (int i = 0; i < 32; ++i) order.from[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  return order;
}();

AOTPACK_INLINE void store_split(int64_t columns, bf16* p, const Split& x) {
  constexpr int kBelowNormal = 0x20;
  constexpr __mmask32 kUpper = 0xaaaaaaaa;
  const auto even = reinterpret_cast<__m512>(x.even), odd = reinterpret_cast<__m512>(x.odd);
  // The instruction takes what lies below the normal range for zero.
  const __mmask16 below = _mm512_fpclass_ps_mask(even, kBelowNormal) | _mm512_fpclass_ps_mask(odd, kBelowNormal);
  if (below == 0) [[likely]] {
    const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    store_first(columns, p, _mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved.from), both));
    return;
  }
  const vu lower = round_to_upper(x.even) >> 16, upper = round_to_upper(x.odd);
  store_first(columns, p,
              _mm512_mask_blend_epi16(kUpper, reinterpret_cast<__m512i>(lower), reinterpret_cast<__m512i>(upper)));
}

AOTPACK_INLINE void store_split(int64_t columns, float* p, const Split& x) {
  const __mmask32 some = first_elements(columns);
  const vf low = __builtin_shufflevector(x.even, x.odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const vf high = __builtin_shufflevector(x.even, x.odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(some), reinterpret_cast<__m512>(low));
  _mm512_mask_storeu_ps(p + kWidth, static_cast<__mmask16>(some >> kWidth), reinterpret_cast<__m512>(high));
}

template <Act act, bool adds, class T>
void finish_rows(const float* sums, int64_t rows, int64_t columns, const bf16* residual, int64_t residual_stride, T* y,
                 int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, sums += kPanel, y += y_stride) {
    Split x = {load(sums), load(sums + kWidth)};
    if constexpr (adds) {
      const Split more = load_split(columns, residual);
      x.even += more.even;
      x.odd += more.odd;
      residual += residual_stride;
    }
    store_split(columns, y, {apply<act>(x.even), apply<act>(x.odd)});
  }
}

}  // namespace

void split_bias(const bf16* bias, int64_t columns, float out[kPanel]) {
  const Split x = bias == nullptr ? Split{} : load_split(columns, bias);
  store(out, x.even);
  store(out + kWidth, x.odd);
}

void finish_split(const float* sums, int64_t rows, int64_t columns, const bf16* residual, int64_t residual_stride,
                  Act act, DType y_dtype, void* y, int64_t y_stride) {
  with_act(act, [&]<Act kAct>() {
    if (y_dtype == DType::f32) {
      finish_rows<kAct, false>(sums, rows, columns, nullptr, 0, static_cast<float*>(y), y_stride);
    } else if (residual != nullptr) {
      finish_rows<kAct, true>(sums, rows, columns, residual, residual_stride, static_cast<bf16*>(y), y_stride);
    } else {
      finish_rows<kAct, false>(sums, rows, columns, nullptr, 0, static_cast<bf16*>(y), y_stride);
    }
  });
}

#else

// Never called: kBf16Rows is 0.
void split_bias(const bf16*, int64_t, float*) {}
void finish_split(const float*, int64_t, int64_t, const bf16*, int64_t, Act, DType, void*, int64_t) {}

#endif

}  // namespace aotpack::kernels
