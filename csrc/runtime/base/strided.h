// Strided views: copies between layouts, density, overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotpack::runtime {

// Copies every element of a view into another of the same sizes. Strides count elements and may be negative or zero (in
// the source). `rank` is at most AOTPACK_MAX_RANK; `item` is 1, 2, 4, 8 or 16 bytes. Pointers need no alignment. The
// views must not share memory.
void strided_copy(void* destination, const int64_t* destination_strides, const void* source,
                  const int64_t* source_strides, const int64_t* sizes, int32_t rank, size_t item) noexcept;

// Whether every element of a view has the bytes of its counterpart in another; arguments as above, overlap allowed.
bool strided_equal(const void* a, const int64_t* a_strides, const void* b, const int64_t* b_strides,
                   const int64_t* sizes, int32_t rank, size_t item) noexcept;

// False when two elements may share memory. A few exotic views that do not overlap are reported as overlapping.
bool is_non_overlapping(const int64_t* sizes, const int64_t* strides, int32_t rank) noexcept;

// The strides of a dense view whose dims lie in memory in `order`, outermost first. False when `item` bytes an element
// overflow; `out_bytes` is the size of the whole.
bool dense_strides(const int64_t* sizes, const uint32_t* order, int32_t rank, size_t item, int64_t* out_strides,
                   size_t* out_bytes) noexcept;

// Whether two sets of strides mean the same view: dims of size 1 may have any stride, empty views any strides.
bool same_layout(const int64_t* sizes, const int64_t* a, const int64_t* b, int32_t rank) noexcept;

}  // namespace aotpack::runtime
