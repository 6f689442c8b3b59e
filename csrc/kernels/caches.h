// The processor's caches, as it tells their sizes.
#pragma once

#include <cstdint>

namespace aotpack::kernels {

// Bytes of the second-level cache of the calling thread's core; 0 where the processor does not tell.
int64_t second_cache_bytes();

// Bytes of the third-level cache that the calling thread's core shares; 0 where the processor does not tell.
int64_t last_cache_bytes();

// Of what stays in the second-level cache while it is used again: `bytes`, which are for one of 1 MiB (Zen 4 and 5,
// Neoverse N1), or less in proportion where it is smaller (512 KiB of Zen 2 and 3, 256 KiB of Intel's before Skylake).
// It never decides the order of sums.
int64_t near_bytes(int64_t bytes);

}  // namespace aotpack::kernels
