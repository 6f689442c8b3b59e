// The bytes of bools. Code that is compiled for a bool relies on 0 and 1: any other byte is undefined behaviour there,
// and reads memory that the tensor does not have. So whatever comes from outside passes through here.
#pragma once

#include <cstddef>

namespace aotpack::runtime {

// Whether all of `count` bytes are 0 or 1. Reads each once, at the speed of memory.
bool are_bools(const void* bytes, size_t count) noexcept;

// Makes every byte other than 0 a 1, as numpy and torch read it.
void make_bools(void* bytes, size_t count) noexcept;

}  // namespace aotpack::runtime
