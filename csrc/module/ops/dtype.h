// From the dtype of a tensor to a C++ type.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "tensor.h"

namespace aotpack::module {

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? 0x7fc0u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};

struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit Float16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const uint16_t sign = static_cast<uint16_t>((word >> 16) & 0x8000u);
    word &= 0x7fffffffu;
    if (word > 0x7f800000u) {
      bits = sign | 0x7e00u;
    } else if (word >= 0x477ff000u) {  // rounds to infinity
      bits = sign | 0x7c00u;
    } else if (word < 0x38800000u) {  // subnormal: the adder rounds
      float magnitude;
      std::memcpy(&magnitude, &word, sizeof(magnitude));
      magnitude += 0.5f;
      std::memcpy(&word, &magnitude, sizeof(word));
      bits = sign | static_cast<uint16_t>(word - 0x3f000000u);
    } else {
      word += 0xc8000fffu + ((word >> 13) & 1u);
      bits = sign | static_cast<uint16_t>(word >> 13);
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    uint32_t word;
    if (exponent == 0x1fu) {
      word = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent != 0) {
      word = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    } else {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      std::memcpy(&word, &magnitude, sizeof(word));
      word |= sign;
    }
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <typename T>
inline constexpr bool is_floating = std::is_floating_point_v<T> || is_half<T>;

// What arithmetic on T is done in.
template <typename T>
using Compute = std::conditional_t<is_half<T>, float, T>;

template <typename T>
bool is_nan(T value) {
  if constexpr (is_floating<T>) return std::isnan(static_cast<Compute<T>>(value));
  return false;
}

// double or an integer to T; halves through float, as torch does.
template <typename T, typename From>
T convert(From value) {
  if constexpr (is_half<T>) return T(static_cast<float>(value));
  return static_cast<T>(value);
}

inline bool is_floating_dtype(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_FLOAT32 || dtype == AOTPACK_DTYPE_FLOAT64 || dtype == AOTPACK_DTYPE_BFLOAT16 ||
         dtype == AOTPACK_DTYPE_FLOAT16;
}
inline bool is_half_dtype(int32_t dtype) { return dtype == AOTPACK_DTYPE_BFLOAT16 || dtype == AOTPACK_DTYPE_FLOAT16; }
inline bool is_complex_dtype(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_COMPLEX64 || dtype == AOTPACK_DTYPE_COMPLEX128;
}

// Calls f with a value of the C++ type of a real dtype; throws for complex ones, naming `op`.
template <typename F>
void dispatch(int32_t dtype, const char* op, F f) {
  switch (dtype) {
    case AOTPACK_DTYPE_UINT8:
      return f(uint8_t{});
    case AOTPACK_DTYPE_INT8:
      return f(int8_t{});
    case AOTPACK_DTYPE_INT16:
      return f(int16_t{});
    case AOTPACK_DTYPE_INT32:
      return f(int32_t{});
    case AOTPACK_DTYPE_INT64:
      return f(int64_t{});
    case AOTPACK_DTYPE_FLOAT16:
      return f(Float16{});
    case AOTPACK_DTYPE_FLOAT32:
      return f(float{});
    case AOTPACK_DTYPE_FLOAT64:
      return f(double{});
    case AOTPACK_DTYPE_BOOL:
      return f(bool{});
    case AOTPACK_DTYPE_BFLOAT16:
      return f(BFloat16{});
    default:
      throw_invalid(std::string(op) + " of " + dtype_name(dtype) + " is not supported");
  }
}

struct Word16 {
  uint64_t words[2];
};

// Calls f with a value of an unsigned type of the element's size, for operators that only move elements.
template <typename F>
void dispatch_size(int32_t dtype, F f) {
  switch (element_size(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(Word16{});
  }
}

}  // namespace aotpack::module
