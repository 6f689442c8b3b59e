// Whether strided views share memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotpack::runtime {

// A view of `rank` dims, at most AOTPACK_MAX_RANK. Strides count elements of `item` bytes, of any sign.
struct MemoryView {
  const void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t rank;
  size_t item;
};

// The addresses [first, last) that a view touches; first == last for an empty one.
struct AddressRange {
  uintptr_t first;
  uintptr_t last;
};
AddressRange addresses(const MemoryView& view) noexcept;

inline bool intersect(const AddressRange& a, const AddressRange& b) noexcept {
  return a.first < b.last && b.first < a.last && a.first != a.last && b.first != b.last;
}

// False only when no byte belongs to both. True means that one does, or, for layouts so irregular that the search for
// one was given up, that one may.
//
// Two views share a byte where sum(stride[i] * index[i]) of one equals that of the other, up to the distance of their
// beginnings: a linear equation in bounded whole numbers. It is searched for a solution axis by axis, from the greatest
// stride on, which decides layouts whose axes nest (slices, columns, transposes of an array) at once; in general the
// problem is NP-hard, so the search is bounded.
bool may_share(const MemoryView& a, const MemoryView& b) noexcept;

// Whether two elements of a view lie in one place; exact in the same sense.
bool may_overlap_itself(const MemoryView& view) noexcept;

}  // namespace aotpack::runtime
