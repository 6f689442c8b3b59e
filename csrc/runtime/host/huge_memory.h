// Memory of which much is written at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/mapping.h"

namespace aotpack::runtime {

// Where the system has pages of this size, one fault brings as much memory as 512 faults of small pages.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages in a range, where whole ones fit into it. Costs no memory until they are touched.
void advise_huge(void* memory, size_t bytes) noexcept;

// Gives the whole pages of a range of anonymous memory back to the system. They read as zeros then.
void return_pages(void* memory, size_t bytes) noexcept;

// Zeros, from the beginning of a huge page on. What is not touched costs no memory. Empty when the system has none
// left.
Mapping map_zeros(size_t bytes) noexcept;

}  // namespace aotpack::runtime
