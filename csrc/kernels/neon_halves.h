// Halves of vectors, for ARM's matrix instructions, whose operands are two rows of eight bytes.
#pragma once

#include "simd.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace aotpack::kernels {

// The lower and the upper halves of two vectors, side by side.
template <class V>
AOTPACK_INLINE V lower_halves(V a, V b) {
  return reinterpret_cast<V>(vzip1q_u64(reinterpret_cast<uint64x2_t>(a), reinterpret_cast<uint64x2_t>(b)));
}
template <class V>
AOTPACK_INLINE V upper_halves(V a, V b) {
  return reinterpret_cast<V>(vzip2q_u64(reinterpret_cast<uint64x2_t>(a), reinterpret_cast<uint64x2_t>(b)));
}

}  // namespace aotpack::kernels
#endif
