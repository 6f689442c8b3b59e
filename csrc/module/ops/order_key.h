// Elements as unsigned integers that compare as the elements do.
#pragma once

#include "ops/dtype.h"

namespace aotpack::module {

// The order of T as that of an unsigned integer: NaN greatest, -0 equal to 0.
template <typename T>
auto order_key(T value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, uint8_t>) {
    return static_cast<uint32_t>(value);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 4) {
    return static_cast<uint32_t>(static_cast<int32_t>(value)) ^ 0x80000000u;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value) ^ 0x8000000000000000u;
  } else {
    using C = Compute<T>;
    using U = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
    constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
    const C real = static_cast<C>(value) + C(0);  // -0 becomes 0
    if (std::isnan(real)) return std::numeric_limits<U>::max();
    U bits;
    std::memcpy(&bits, &real, sizeof(bits));
    return static_cast<U>(bits & kSign ? ~bits : bits | kSign);
  }
}

}  // namespace aotpack::module
