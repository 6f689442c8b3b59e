// The dtypes of 16 bits against their definition.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/floats.h"

using namespace aotpack::runtime;

namespace {

// The value of a finite code, from its sign, exponent and mantissa.
double value_of(uint32_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  const auto exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x8000u) != 0 ? -size : size;
}

uint16_t encode(const DType& dtype, double value) {
  uint16_t bits = 0;
  from_doubles(dtype, &value, 1, &bits);
  return bits;
}

double decode(const DType& dtype, uint16_t bits) {
  double value = 0;
  to_doubles(dtype, &bits, 1, &value);
  return value;
}

void check_codes(const char* name, int mantissa_bits) {
  const DType& dtype = *find_dtype(name);
  const uint32_t infinity = 0x7fffu & ~((1u << mantissa_bits) - 1);
  int wrong = 0;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const double value = value_of(bits | sign, mantissa_bits);
      wrong += decode(dtype, static_cast<uint16_t>(bits | sign)) != value;
      wrong += encode(dtype, value) != (bits | sign);
    }
    // Between two codes: the nearer one, and of the middle the even one; beyond the last one infinity.
    const double low = value_of(bits, mantissa_bits);
    const double middle = low + std::ldexp((bits + 1 < infinity ? value_of(bits + 1, mantissa_bits) : 0) - low, -1);
    if (bits + 1 == infinity) continue;
    wrong += encode(dtype, middle) != bits + bits % 2;
    wrong += encode(dtype, std::nextafter(static_cast<float>(middle), 0.0f)) != bits;
    wrong += encode(dtype, std::nextafter(static_cast<float>(middle), HUGE_VALF)) != bits + 1;
  }
  CHECK(wrong == 0);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK(decode(dtype, static_cast<uint16_t>(infinity)) == kInfinity);
  CHECK(decode(dtype, static_cast<uint16_t>(infinity | 0x8000u)) == -kInfinity);
  CHECK(encode(dtype, kInfinity) == infinity);
  CHECK(encode(dtype, -1e300) == (infinity | 0x8000u));
  CHECK(std::isnan(decode(dtype, static_cast<uint16_t>(infinity | 1))));
  CHECK(std::isnan(decode(dtype, encode(dtype, std::numeric_limits<double>::quiet_NaN()))));
}

}  // namespace

TEST_CASE("every code of float16 is read, written and rounded to") { check_codes("float16", 10); }

TEST_CASE("every code of bfloat16 is read, written and rounded to") { check_codes("bfloat16", 7); }
