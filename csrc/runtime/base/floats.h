// Elements of the floating-point dtypes as doubles.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace aotpack::runtime {

bool is_floating(const DType& dtype) noexcept;

// `source` needs no alignment; the dtype is floating.
void to_doubles(const DType& dtype, const void* source, size_t count, double* out) noexcept;
// Rounds to the nearest, halves to even; through float for the dtypes of 16 bits.
void from_doubles(const DType& dtype, const double* source, size_t count, void* out) noexcept;

// Whether no element of a floating or complex dtype is NaN or infinite; true for other dtypes. `source` needs no
// alignment.
bool all_finite(const DType& dtype, const void* source, size_t count) noexcept;

}  // namespace aotpack::runtime
