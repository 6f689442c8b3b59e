// A few rows by a weight of 4 bits, as exact products and sums of integers.
//
// Rows of x become integers of 32 bits, or of 24 where x has 16: multiples, by group of the weight, of a power of two
// that is 2^-30 (2^-22) or less of the greatest number of the group. What is lost lies below the rounding of float
// sums. Their bytes are multiplied with the weight's numbers by the processor's instruction for it, and sums over a
// group become floats.
#pragma once

#include "quantized_linear.h"

namespace aotpack::kernels {

// Of the rows of x.
struct QuantizedDigits {
  uint8_t* bytes;  // [row][block of 16 along k][digit][16]
  int32_t* begin;  // [row][group][digit]: where sums over the group begin
  float* step;     // [row][group]: what the lowest digit counts
};

// Whether the weight has 4 bits, the processor has the instruction, and sums cannot overflow.
bool quantized_dot_works(const QuantizedLinearArgs& args);

// How many of each a call needs.
struct QuantizedDigitCounts {
  int64_t bytes, begin, step;
};
QuantizedDigitCounts quantized_digit_counts(const QuantizedLinearArgs& args);

// Fills `digits` for the rows of x, as floats `stride` apart. False: there is an infinity or a NaN, and no such
// integers.
bool quantized_digits(const QuantizedLinearArgs& args, const float* x, int64_t stride, const QuantizedDigits& digits);

// tile[r * 32 + j] = bias[j] + the sum over x[r] * B for the columns of a panel; sums[r * groups + i] of the rows of x
// are those over group i, or null without offsets.
void quantized_dot(const QuantizedLinearArgs& args, const QuantizedDigits& digits, const float* sums, int64_t panel,
                   const float* bias, float* tile);

}  // namespace aotpack::kernels
