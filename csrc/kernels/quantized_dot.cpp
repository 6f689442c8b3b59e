#include "quantized_dot.h"

#include "element_types.h"
#include "int8_dot.h"
#include "quantized_groups.h"
#include "simd.h"

namespace aotpack::kernels {

#if defined(__AVX512BW__)

namespace {

using detail::groups_of;
using detail::rows_of;

constexpr int64_t kBlock = 16;               // along k
constexpr int kMostDigits = 4;               // of 8 bits
constexpr int kRows = 2;                     // at a time
constexpr int64_t kLongestGroup = 64 << 10;  // 15 * 128 of each row fit into 32 bits
constexpr int64_t kAhead = 2048;             // bytes of the weight that are asked for ahead of time

int digits_of(DType dtype) { return is_f32(dtype) ? 4 : 3; }
// Groups begin at blocks of their own.
int64_t first_block(int64_t group, int64_t row) { return row / kBlock + group; }
int64_t blocks(const QuantizedLinearArgs& g) { return first_block(groups_of(g), g.k) + 1; }

float power_of_two(int exponent) {
  const uint32_t bits = static_cast<uint32_t>(exponent + 127) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The bits of the greatest magnitude.
uint32_t greatest(const float* x, int64_t count) {
  vu most = {};
  int64_t i = 0;
  const auto magnitude = [](vf v) __attribute__((always_inline)) { return reinterpret_cast<vu>(v) & 0x7fffffffu; };
  for (; i + kWidth <= count; i += kWidth) {
    const vu bits = magnitude(load(x + i));
    most = bits > most ? bits : most;
  }
  if (i < count) {
    const vu bits = magnitude(load_partial(x + i, static_cast<int>(count - i)));
    most = bits > most ? bits : most;
  }
  uint32_t found = 0;
  for (int lane = 0; lane < kWidth; ++lane) found = most[lane] > found ? most[lane] : found;
  return found;
}

// The digits of `count` numbers times `factor`, and the sum of each digit.
template <int kDigits>
void split(const float* x, int64_t count, float factor, uint8_t* to, int32_t* sums) {
  vi total[kDigits] = {};
  for (int64_t i = 0; i < count; i += kBlock, to += kDigits * kBlock) {
    const vf some = i + kBlock <= count ? load(x + i) : load_partial(x + i, static_cast<int>(count - i));
    vi rest = reinterpret_cast<vi>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(some * vset(factor))));
    AOTPACK_UNROLL
    for (int d = 0; d < kDigits; ++d) {
      const vi digit = d + 1 < kDigits ? (rest << 24) >> 24 : rest;
      rest = (rest - digit) >> 8;
      total[d] += digit;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d * kBlock),
                       _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(digit)));
    }
  }
  for (int d = 0; d < kDigits; ++d) {
    sums[d] = 0;
    for (int lane = 0; lane < kWidth; ++lane) sums[d] += total[d][lane];
  }
}

AOTPACK_INLINE vi add_products(vi sum, vi unsigned_bytes, const uint8_t* signed_four) {
  struct Four {
    uint8_t each[4];
  };
  // Not through an intrinsic, as in int8_dot.h.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(unsigned_bytes), "m"(*reinterpret_cast<const Four*>(signed_four)));
  return sum;
}

// Four rows of a panel: in lane j the byte j of each.
AOTPACK_INLINE vi columns_of(vi rows) {
  const vi places = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const vi bytes = {0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703, 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703,
                    0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703, 0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703};
  const __m512i gathered =
      _mm512_maskz_permutexvar_epi32(0xffff, reinterpret_cast<__m512i>(places), reinterpret_cast<__m512i>(rows));
  return reinterpret_cast<vi>(_mm512_shuffle_epi8(gathered, reinterpret_cast<__m512i>(bytes)));
}

template <int kDigits, int kCount>
void multiply(const QuantizedLinearArgs& g, const QuantizedDigits& digits, int64_t first_row, const float* sums,
              int64_t panel, const float* bias, float* tile) {
  constexpr int64_t kBytes = kPanel / 2, kBlockBytes = kDigits * kBlock;
  const int64_t count = groups_of(g), row_bytes = blocks(g) * kBlockBytes;
  const uint8_t* const weight = static_cast<const uint8_t*>(g.w_packed) + panel * g.k * kBytes;
  const uint8_t* const bytes = digits.bytes + first_row * row_bytes;
  const int32_t* const begins = digits.begin + first_row * count * kDigits;
  const float* scale = g.scale + panel * count * kPanel;
  const float* offset = g.offset == nullptr ? nullptr : g.offset + panel * count * kPanel;
  vf total[kCount][2];
  AOTPACK_UNROLL
  for (int r = 0; r < kCount; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2; ++v) total[r][v] = load(bias + v * kWidth);
  }
  for (int64_t group = 0; group < count; ++group, scale += kPanel) {
    const Range rows = rows_of(g, group);
    const uint8_t* x = bytes + first_block(group, rows.begin) * kBlockBytes;
    const uint8_t* w = weight + rows.begin * kBytes;
    vi acc[kCount][kDigits][2];
    AOTPACK_UNROLL
    for (int r = 0; r < kCount; ++r) {
      AOTPACK_UNROLL
      for (int d = 0; d < kDigits; ++d) {
        acc[r][d][0] = acc[r][d][1] = begins[(r * count + group) * kDigits + d] - vi{};
      }
    }
    const auto step = [&](vi four, const uint8_t* at) __attribute__((always_inline)) {
      const vi both = columns_of(four);
      const vi low = both & 0x0f0f0f0f, high = (both >> 4) & 0x0f0f0f0f;
      AOTPACK_UNROLL
      for (int r = 0; r < kCount; ++r) {
        AOTPACK_UNROLL
        for (int d = 0; d < kDigits; ++d) {
          acc[r][d][0] = add_products(acc[r][d][0], low, at + r * row_bytes + d * kBlock);
          acc[r][d][1] = add_products(acc[r][d][1], high, at + r * row_bytes + d * kBlock);
        }
      }
    };
    int64_t i = rows.begin;
    for (; i + kBlock <= rows.end; i += kBlock, x += kBlockBytes, w += kBlock * kBytes) {
      AOTPACK_UNROLL
      for (int quad = 0; quad < 4; ++quad) {
        __builtin_prefetch(w + kAhead + 64 * quad);
        step(load_lanes(w + 64 * quad), x + 4 * quad);
      }
    }
    // Digits beyond the group are zero; what lies beyond the panel is not read.
    for (; i < rows.end; i += 4, x += 4, w += 64) {
      const int64_t left = min64(4, g.k - i) * kBytes;
      step(reinterpret_cast<vi>(_mm512_maskz_loadu_epi8(left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1, w)),
           x);
    }
    AOTPACK_UNROLL
    for (int v = 0; v < 2; ++v) {
      const vf s = load(scale + v * kWidth);
      AOTPACK_UNROLL
      for (int r = 0; r < kCount; ++r) {
        vf sum = __builtin_convertvector(acc[r][0][v], vf);
        AOTPACK_UNROLL
        for (int d = 1; d < kDigits; ++d) {
          sum += static_cast<float>(1 << (8 * d)) * __builtin_convertvector(acc[r][d][v], vf);
        }
        total[r][v] += sum * vset(digits.step[(first_row + r) * count + group]) * s;
        if (offset == nullptr) continue;
        total[r][v] += load(offset + group * kPanel + v * kWidth) * vset(sums[(first_row + r) * count + group]);
      }
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kCount; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < 2; ++v) store(tile + (first_row + r) * kPanel + v * kWidth, total[r][v]);
  }
}

template <int kDigits>
void multiply_rows(const QuantizedLinearArgs& g, const QuantizedDigits& digits, const float* sums, int64_t panel,
                   const float* bias, float* tile) {
  int64_t row = 0;
  for (; row + kRows <= g.m; row += kRows) multiply<kDigits, kRows>(g, digits, row, sums, panel, bias, tile);
  if (row < g.m) multiply<kDigits, 1>(g, digits, row, sums, panel, bias, tile);
}

}  // namespace

bool quantized_dot_works(const QuantizedLinearArgs& g) {
  const int64_t longest = g.bounds != nullptr ? g.k : min64(g.group, g.k);
  return g.bits == 4 && longest <= kLongestGroup && has_int8_dot();
}

QuantizedDigitCounts quantized_digit_counts(const QuantizedLinearArgs& g) {
  const int64_t digits = digits_of(g.dtype), groups = groups_of(g);
  return {g.m * blocks(g) * digits * kBlock, g.m * groups * digits, g.m * groups};
}

bool quantized_digits(const QuantizedLinearArgs& g, const float* x, int64_t stride, const QuantizedDigits& to) {
  const int digits = digits_of(g.dtype);
  const int64_t groups = groups_of(g), row_bytes = blocks(g) * digits * kBlock;
  for (int64_t r = 0; r < g.m; ++r) {
    for (int64_t group = 0; group < groups; ++group) {
      const Range rows = rows_of(g, group);
      const float* from = x + r * stride + rows.begin;
      const uint32_t most = greatest(from, rows.end - rows.begin);
      if (most >= 0x7f800000u) return false;
      // The greatest number gets below 2^30 (2^22). The least of floats are nothing beside those of weights.
      const int exponent = static_cast<int>(max64(most >> 23, 40)) - 127, top = 8 * digits - 3;
      int32_t sums[kMostDigits];
      uint8_t* bytes = to.bytes + r * row_bytes + first_block(group, rows.begin) * digits * kBlock;
      (digits == 4 ? split<4> : split<3>)(from, rows.end - rows.begin, power_of_two(top - exponent), bytes, sums);
      to.step[r * groups + group] = power_of_two(exponent - top);
      // The weight's numbers are stored with 8 added.
      for (int d = 0; d < digits; ++d) to.begin[(r * groups + group) * digits + d] = -8 * sums[d];
    }
  }
  return true;
}

void quantized_dot(const QuantizedLinearArgs& g, const QuantizedDigits& digits, const float* sums, int64_t panel,
                   const float* bias, float* tile) {
  (digits_of(g.dtype) == 4 ? multiply_rows<4> : multiply_rows<3>)(g, digits, sums, panel, bias, tile);
}

#else

bool quantized_dot_works(const QuantizedLinearArgs&) { return false; }
// Never called.
QuantizedDigitCounts quantized_digit_counts(const QuantizedLinearArgs&) { return {}; }
bool quantized_digits(const QuantizedLinearArgs&, const float*, int64_t, const QuantizedDigits&) { return false; }
void quantized_dot(const QuantizedLinearArgs&, const QuantizedDigits&, const float*, int64_t, const float*, float*) {}

#endif

}  // namespace aotpack::kernels
