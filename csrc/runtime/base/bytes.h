// Little-endian loads and overflow-checked arithmetic.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace aotpack::runtime {

static_assert(std::endian::native == std::endian::little, "archives are little-endian and are mapped in place");

using Bytes = std::span<const uint8_t>;

template <typename Integer>
inline Integer load(const uint8_t* at) noexcept {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// True when the exact result fits; the result is in `out` only then.
template <typename Integer>
[[nodiscard]] inline bool checked_add(Integer a, Integer b, Integer* out) noexcept {
  return !__builtin_add_overflow(a, b, out);
}
template <typename Integer>
[[nodiscard]] inline bool checked_mul(Integer a, Integer b, Integer* out) noexcept {
  return !__builtin_mul_overflow(a, b, out);
}

}  // namespace aotpack::runtime
