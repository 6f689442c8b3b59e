// Which element types there is code for. Only what depends on that includes this: the objects of all other sources are
// the same for every model.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// A module is compiled with AOTPACK_WITHOUT_BF16, AOTPACK_WITHOUT_F16 or, for both, AOTPACK_WITHOUT_HALVES where it has
// no such tensors: the code for them is then never compiled.
#if defined(AOTPACK_WITHOUT_BF16) || defined(AOTPACK_WITHOUT_HALVES)
inline constexpr bool kHasBf16 = false;
#else
inline constexpr bool kHasBf16 = true;
#endif
#if defined(AOTPACK_WITHOUT_F16) || defined(AOTPACK_WITHOUT_HALVES)
inline constexpr bool kHasF16 = false;
#else
inline constexpr bool kHasF16 = true;
#endif

inline constexpr bool is_f32(DType dtype) { return dtype == DType::f32 || !(kHasBf16 || kHasF16); }

// body.operator()<T>() for the element type T of dtype: float, bf16 or f16, of those that there is code for.
template <class Body>
inline auto with_type(DType dtype, const Body& body) {
  if constexpr (kHasBf16) {
    if (dtype == DType::bf16) return body.template operator()<bf16>();
  }
  if constexpr (kHasF16) {
    if (dtype == DType::f16) return body.template operator()<f16>();
  }
  return body.template operator()<float>();
}

}  // namespace aotpack::kernels
