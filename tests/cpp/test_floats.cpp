// The dtypes of 16 bits against their definition, and what is no number in any dtype.
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

TEST_CASE("NaN and infinity are found in every floating and complex dtype, wherever they are") {
  const struct {
    const char* dtype;
    uint64_t infinity;  // 0: the dtype has none
    uint64_t nan;
    uint64_t largest;
  } cases[] = {
      {"float16", 0x7c00, 0x7e00, 0x7bff},
      {"bfloat16", 0x7f80, 0x7fc0, 0x7f7f},
      {"float32", 0x7f800000, 0x7fc00000, 0x7f7fffff},
      {"float64", 0x7ff0000000000000, 0x7ff8000000000000, 0x7fefffffffffffff},
      {"complex64", 0x7f800000, 0x7fc00000, 0x7f7fffff},
      {"complex128", 0x7ff0000000000000, 0x7ff8000000000000, 0x7fefffffffffffff},
      {"float8_e4m3fn", 0, 0x7f, 0x7e},
      {"float8_e5m2", 0x7c, 0x7f, 0x7b},
      {"float8_e4m3fnuz", 0, 0x80, 0x7f},
      {"float8_e5m2fnuz", 0, 0x80, 0x7f},
  };
  for (const auto& each : cases) {
    CAPTURE(each.dtype);
    const DType& dtype = *find_dtype(std::string_view(each.dtype));
    const size_t parts = dtype.dlpack.code == kDLComplex ? 2 : 1;
    const size_t item = dtype.size / parts;
    const uint64_t sign = uint64_t{1} << (8 * item - 1);
    const bool has_negative_zero = std::string(each.dtype).find("uz") == std::string::npos;
    // Longer than what is read at once, and not aligned.
    constexpr size_t kCount = 4099;
    std::vector<char> room(1 + kCount * dtype.size);
    const auto put = [&](size_t index, uint64_t bits) { std::memcpy(room.data() + 1 + index * item, &bits, item); };
    const auto good = [&](size_t count) { return all_finite(dtype, room.data() + 1, count); };
    for (size_t i = 0; i < kCount * parts; ++i) {
      put(i, (i % 2 == 0 ? each.largest : 0) | (i % 3 == 0 && has_negative_zero ? sign : 0));
    }
    CHECK(good(kCount));
    for (const size_t at : {size_t{0}, parts, size_t{4096} * parts, kCount * parts - 1}) {
      put(at, each.nan);
      CHECK_FALSE(good(kCount));
      if (each.infinity != 0) {
        for (const uint64_t bits : {each.infinity, each.infinity | sign}) {
          put(at, bits);
          CHECK_FALSE(good(kCount));
        }
      }
      put(at, each.largest);
    }
    put(kCount * parts - 1, each.nan);
    CHECK(good(kCount - 1));
    CHECK(good(0));
  }
  const int8_t byte = -1;
  CHECK(all_finite(*find_dtype("int8"), &byte, 1));
}
