#include "bf16_epilogue.h"

#include "bf16_split.h"
#include "element_types.h"
#include "epilogue.h"

namespace aotpack::kernels {

#if defined(__AVX512BF16__)

namespace {

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

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

void split_bias(const bf16* bias, int64_t columns, float out[kPanel]) {
  for (int64_t j = 0; j < kPanel; ++j) {
    out[j % 2 * (kPanel / 2) + j / 2] = bias != nullptr && j < columns ? to_float(bias[j]) : 0.0f;
  }
}

void finish_split(const float* sums, int64_t rows, int64_t columns, const bf16* residual, int64_t residual_stride,
                  Act act, DType y_dtype, void* y, int64_t y_stride) {
  alignas(64) float natural[kPanel];
  for (int64_t r = 0; r < rows; ++r, sums += kPanel) {
    for (int64_t j = 0; j < kPanel; ++j) natural[j] = sums[j % 2 * (kPanel / 2) + j / 2];
    finish(natural, kPanel, 1, columns, y_dtype, residual == nullptr ? nullptr : residual + r * residual_stride,
           residual_stride, act, advance(y, r * y_stride, y_dtype), y_stride);
  }
}

#else

// Never called: kBf16Rows is 0.
void split_bias(const bf16*, int64_t, float*) {}
void finish_split(const float*, int64_t, int64_t, const bf16*, int64_t, Act, DType, void*, int64_t) {}

#endif

}  // namespace aotpack::kernels
