#include "base/floats.h"

#include <cstring>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {
namespace {

template <typename To, typename From>
To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

struct Half {
  static float decode(uint16_t bits) noexcept {
    constexpr uint32_t kExponent = 0x7c00u << 13;
    uint32_t wide = (bits & 0x7fffu) << 13;
    const uint32_t exponent = wide & kExponent;
    wide += (127 - 15) << 23;
    if (exponent == kExponent) {
      wide += (128 - 16) << 23;  // infinity and NaN
    } else if (exponent == 0) {
      // Subnormal: the subtraction normalises it.
      wide = bits_as<uint32_t>(bits_as<float>(wide + (1u << 23)) - bits_as<float>(113u << 23));
    }
    return bits_as<float>(wide | (bits & 0x8000u) << 16);
  }

  static uint16_t encode(float value) noexcept {
    const auto bits = bits_as<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return sign | 0x7e00u;
    if (rest >= (127 + 16) << 23) return sign | 0x7c00u;
    if (rest < (127 - 14) << 23) {
      // Subnormal: adding one half puts the last bit of the result where a float's last bit is, and rounds.
      return static_cast<uint16_t>(sign | (bits_as<uint32_t>(bits_as<float>(rest) + 0.5f) - bits_as<uint32_t>(0.5f)));
    }
    rest -= (127 - 15) << 23;
    rest += 0xfffu + (rest >> 13 & 1u);
    return static_cast<uint16_t>(sign | rest >> 13);
  }
};

struct BFloat {
  static float decode(uint16_t bits) noexcept { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }

  static uint16_t encode(float value) noexcept {
    const auto bits = bits_as<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};

template <typename T>
void read(const void* source, size_t count, double* out) noexcept {
  const char* at = static_cast<const char*>(source);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, at + i * sizeof value, sizeof value);
    out[i] = static_cast<double>(value);
  }
}

template <typename T>
void write(const double* source, size_t count, void* out) noexcept {
  char* at = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<T>(source[i]);
    std::memcpy(at + i * sizeof value, &value, sizeof value);
  }
}

template <typename Code>
void read_coded(const void* source, size_t count, double* out) noexcept {
  const char* at = static_cast<const char*>(source);
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
    out[i] = static_cast<double>(Code::decode(bits));
  }
}

template <typename Code>
void write_coded(const double* source, size_t count, void* out) noexcept {
  char* at = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = Code::encode(static_cast<float>(source[i]));
    std::memcpy(at + i * sizeof bits, &bits, sizeof bits);
  }
}

// Elements whose bits under `mask` are `bad` are NaN or infinite.
template <typename Bits>
bool has_none(const void* source, size_t count, Bits mask, Bits bad) noexcept {
  constexpr size_t kBlock = 4096;
  const auto* at = static_cast<const char*>(source);
  while (count > 0) {
    const size_t length = count < kBlock ? count : kBlock;
    // Without a branch for each element, so that it is vectorized.
    unsigned found = 0;
    for (size_t i = 0; i < length; ++i) {
      Bits bits;
      std::memcpy(&bits, at + i * sizeof bits, sizeof bits);
      found |= static_cast<unsigned>((bits & mask) == bad);
    }
    if (found != 0) return false;
    at += length * sizeof(Bits);
    count -= length;
  }
  return true;
}

}  // namespace

bool is_floating(const DType& dtype) noexcept {
  return dtype.module_code == AOTPACK_DTYPE_FLOAT16 || dtype.module_code == AOTPACK_DTYPE_FLOAT32 ||
         dtype.module_code == AOTPACK_DTYPE_FLOAT64 || dtype.module_code == AOTPACK_DTYPE_BFLOAT16;
}

void to_doubles(const DType& dtype, const void* source, size_t count, double* out) noexcept {
  if (dtype.module_code == AOTPACK_DTYPE_FLOAT16) return read_coded<Half>(source, count, out);
  if (dtype.module_code == AOTPACK_DTYPE_BFLOAT16) return read_coded<BFloat>(source, count, out);
  if (dtype.module_code == AOTPACK_DTYPE_FLOAT32) return read<float>(source, count, out);
  read<double>(source, count, out);
}

void from_doubles(const DType& dtype, const double* source, size_t count, void* out) noexcept {
  if (dtype.module_code == AOTPACK_DTYPE_FLOAT16) return write_coded<Half>(source, count, out);
  if (dtype.module_code == AOTPACK_DTYPE_BFLOAT16) return write_coded<BFloat>(source, count, out);
  if (dtype.module_code == AOTPACK_DTYPE_FLOAT32) return write<float>(source, count, out);
  write<double>(source, count, out);
}

bool all_finite(const DType& dtype, const void* source, size_t count) noexcept {
  switch (dtype.module_code) {
    case AOTPACK_DTYPE_FLOAT16:
      return has_none<uint16_t>(source, count, 0x7c00, 0x7c00);
    case AOTPACK_DTYPE_BFLOAT16:
      return has_none<uint16_t>(source, count, 0x7f80, 0x7f80);
    case AOTPACK_DTYPE_COMPLEX64:
      count *= 2;
      [[fallthrough]];
    case AOTPACK_DTYPE_FLOAT32:
      return has_none<uint32_t>(source, count, 0x7f800000, 0x7f800000);
    case AOTPACK_DTYPE_COMPLEX128:
      count *= 2;
      [[fallthrough]];
    case AOTPACK_DTYPE_FLOAT64:
      return has_none<uint64_t>(source, count, 0x7ff0000000000000, 0x7ff0000000000000);
    case AOTPACK_DTYPE_FLOAT8_E5M2:
      return has_none<uint8_t>(source, count, 0x7c, 0x7c);
    case AOTPACK_DTYPE_FLOAT8_E4M3FN:  // no infinity, one NaN of each sign
      return has_none<uint8_t>(source, count, 0x7f, 0x7f);
    case AOTPACK_DTYPE_FLOAT8_E4M3FNUZ:  // one NaN: what would be a negative zero
    case AOTPACK_DTYPE_FLOAT8_E5M2FNUZ:
      return has_none<uint8_t>(source, count, 0xff, 0x80);
    default:
      return true;
  }
}

}  // namespace aotpack::runtime
